"""Events arrive as messages, in order per key, as the preview says."""

import json
import re
from collections import defaultdict

import pytest
from outbox_rig import wait_until

from streams import Stream


def sinks(db):
    return lambda: str(db.sql("SELECT * FROM outbox.sinks"))


def bodies_by_key(messages) -> dict[str, list[int]]:
    found = defaultdict(list)
    for message in messages:
        value = json.loads(message.body)
        found[value["key"]].append(value["n"])
    return found


def test_an_event_is_a_message(db, server, name):
    stream = Stream(server, name, ["outbox.event.>"])
    try:
        db.nats_sink("nats", server)
        id = db.enqueue("Order", "7", "order.created", '{"a": 1}', headers='{"tenant": "eu", "traceparent": "x"}')
        [message] = stream.read(1)
        assert message.subject == "outbox.event.Order.order.created" and message.body == b'{"a": 1}'
        assert re.fullmatch(id + "-[0-9a-f]{16}", message.headers.pop("Nats-Msg-Id"))
        assert message.headers == {"id": id, "tenant": "eu", "traceparent": "x"}
        wait_until(lambda: db.pending() == 0, 20, sinks(db))
        assert db.sink("kind, target, state", "nats") == ("nats", f"127.0.0.1:{server.port}", "idle")
    finally:
        stream.delete()


def test_a_kept_event_tells_its_stream_and_sequence(db, server, name):
    """Sent again by a user, it is stored again, also within the stream's duplicate_window."""
    stream = Stream(server, name)
    db.nats_sink("nats", server, subject=f"{name}.${{event_type}}", retention="1d")
    ids = [db.enqueue("Order", "7") for _ in range(2)]
    told = "SELECT acknowledgement FROM outbox.events WHERE id = %s ORDER BY position"
    for sequence, id in enumerate(ids, 1):
        wait_until(lambda: db.pending() == 0, 20, sinks(db))
        assert db.value(told, id).startswith(f"stream {name}, sequence {sequence}")
    db.sql("SELECT outbox.replay('nats', event => %s)", ids[0])
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    assert stream.count() == 3
    assert sorted(row[0].split(" (")[0] for row in db.sql(told, ids[0])) == [f"stream {name}, sequence 1", f"stream {name}, sequence 3"]
    assert db.value("SELECT outbox.replay('nats', '1 hour')") == 2
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    assert stream.count() == 5


def test_two_sinks_of_one_stream_have_all_of_their_messages_in_it(db, server, name):
    stream = Stream(server, name)
    for sink in ("a", "b"):
        db.nats_sink(sink, server, subject=f"{name}.{sink}.${{event_type}}", retention="1d")
    id = db.enqueue("Order", "7", "made")
    assert {message.subject for message in stream.read(2)} == {f"{name}.a.made", f"{name}.b.made"}
    assert {message.id for message in stream.messages} == {id}
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    assert "duplicate" not in str(db.sql("SELECT acknowledgement FROM outbox.events"))


def test_an_event_that_another_publisher_has_sent_is_named(pg, db, server, name):
    """Its message is dropped as a duplicate, though this sink sends it for the first time."""
    stream, since = Stream(server, name), pg.log.stat().st_size
    db.nats_sink("nats", server, subject=f"{name}.${{event_type}}", retention="1d")
    db.enqueue("Order", "7")
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    assert db.sql("SELECT status, hint FROM outbox.doctor() WHERE \"check\" = 'sink nats'") == [("ok", None)]
    id = db.value("SELECT outbox.enqueue('Order', '7', 'made', '{}', available_at => now() + interval '1 hour')")
    identity = db.value("SELECT id || '-' || lpad(to_hex(position), 16, '0') FROM outbox.events WHERE id = %s", id)
    server.run(lambda js: js.publish(f"{name}.made", b"of somebody else", headers={"Nats-Msg-Id": identity}))
    db.sql("UPDATE outbox.events SET available_at = now() WHERE id = %s AND status = 'PENDING'", id)
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    assert stream.count() == 2 and stream.read(2)[1].body == b"of somebody else"
    assert re.match(f"stream {name}, sequence 2, duplicate", db.value("SELECT acknowledgement FROM outbox.events WHERE id = %s", id))
    wait_until(lambda: db.value("SELECT publish_failures_total FROM outbox.failure_metrics WHERE reason = 'duplicate'") == 1, 20, sinks(db))
    [(status, detail, hint)] = db.sql("SELECT status, detail, hint FROM outbox.doctor() WHERE \"check\" = 'sink nats'")
    assert status == "warning" and "1 event was dropped by the destination as stored before" in detail and "reset_stats('nats')" in hint
    assert "another publisher has used its Nats-Msg-Id" in pg.logged(since)
    db.sql("SELECT outbox.reset_stats('nats')")
    assert db.value("SELECT status FROM outbox.doctor() WHERE \"check\" = 'sink nats'") == "ok"


@pytest.mark.parametrize("renamed", [False, True], ids=["same name", "renamed"])
def test_an_event_that_is_sent_again_is_no_foreign_duplicate(db, server, name, renamed):
    stream = Stream(server, name)
    db.nats_sink("nats", server, subject=f"{name}.${{event_type}}", retention="1d")
    id = db.value("SELECT outbox.enqueue('Order', '7', 'made', '{}', available_at => now() + interval '1 hour')")
    identity = db.value("SELECT id || '-' || lpad(to_hex(position), 16, '0') FROM outbox.events WHERE id = %s", id)
    server.run(lambda js: js.publish(f"{name}.made", b"sent before the connection was lost", headers={"Nats-Msg-Id": identity}))
    if renamed:
        db.sql("ALTER SERVER nats RENAME TO messages")
    db.sql("UPDATE outbox.events SET available_at = now(), attempts = 1 WHERE id = %s AND status = 'PENDING'", id)
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    assert stream.count() == 1 and "duplicate" in db.value("SELECT acknowledgement FROM outbox.events WHERE id = %s", id)
    assert db.sql("SELECT * FROM outbox.failure_metrics") == []


def test_a_thousand_keys_in_order(db, server, name):
    stream = Stream(server, name)
    db.nats_sink("nats", server, subject=f"{name}.${{event_type}}")
    db.sql("SELECT outbox.enqueue('Order', (n % 1000)::text, 'order.made', jsonb_build_object('key', (n % 1000)::text, 'n', n)) FROM generate_series(1, 20000) AS n")
    found = bodies_by_key(stream.read(20000))
    assert len(found) == 1000
    for key, numbers in found.items():
        assert numbers == [n for n in range(1, 20001) if str(n % 1000) == key]
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    assert stream.count() == 20000, "no event arrives twice without a fault"


def test_a_stream_in_memory_and_one_in_a_file_of_one_sink(db, server, name):
    orders, mails = Stream(server, name, [f"{name}.Order.>"], storage="memory"), Stream(server, f"{name}-mail", [f"{name}.Mail.>"])
    db.nats_sink("nats", server, subject=f"{name}.${{aggregate_type}}.${{event_type}}")
    db.sql("SELECT outbox.enqueue(CASE n % 2 WHEN 0 THEN 'Order' ELSE 'Mail' END, (n % 10)::text, 'made', to_jsonb(n)) FROM generate_series(1, 200) AS n")
    assert {message.body for message in orders.read(100)} == {str(n).encode() for n in range(2, 201, 2)}
    assert len(mails.read(100)) == 100
