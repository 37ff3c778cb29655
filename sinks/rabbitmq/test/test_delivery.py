"""Events arrive as messages, in order per key, as the preview says."""

import json
from collections import defaultdict

from outbox_rig import wait_until

from queues import Queue


def sinks(db):
    return lambda: str(db.sql("SELECT * FROM outbox.sinks"))


def bodies_by_key(messages) -> dict[str, list[int]]:
    found = defaultdict(list)
    for _, _, body in messages:
        value = json.loads(body)
        found[value["key"]].append(value["n"])
    return found


def test_an_event_is_a_persistent_message(db, broker, exchange):
    queue = Queue(broker, exchange)
    db.rabbit_sink("rabbit", broker, exchange=exchange)
    id = db.enqueue("Order", "7", "order.created", '{"a": 1}', headers='{"tenant": "eu", "traceparent": "x"}')
    [(method, properties, body)] = queue.read(1)
    assert method.routing_key == "Order.order.created" and method.exchange == exchange
    assert body == b'{"a": 1}'
    assert (properties.message_id, properties.type, properties.delivery_mode, properties.content_type) == (id, "order.created", 2, "application/json")
    assert properties.headers == {"id": id, "tenant": "eu", "traceparent": "x"}
    assert properties.timestamp > 1_700_000_000
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    assert db.sink("kind, target, state", "rabbit") == ("rabbitmq", f"127.0.0.1:{broker.port}", "idle")


def test_a_kept_event_tells_that_it_was_confirmed(db, broker, exchange):
    Queue(broker, exchange)
    db.rabbit_sink("rabbit", broker, exchange=exchange, retention="1d")
    id = db.enqueue("Order", "7")
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    assert db.value("SELECT acknowledgement FROM outbox.events WHERE id = %s", id).startswith(f"confirmed by 127.0.0.1 port {broker.port}")


def test_a_thousand_keys_in_order(db, broker, exchange):
    queue = Queue(broker, exchange)
    db.rabbit_sink("rabbit", broker, exchange=exchange)
    db.sql("SELECT outbox.enqueue('Order', (n % 1000)::text, 'order.made', jsonb_build_object('key', (n % 1000)::text, 'n', n)) FROM generate_series(1, 20000) AS n")
    found = bodies_by_key(queue.read(20000))
    assert len(found) == 1000
    for key, numbers in found.items():
        assert numbers == [n for n in range(1, 20001) if str(n % 1000) == key]
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    assert queue.count() == 0, "no event arrives twice without a fault"
