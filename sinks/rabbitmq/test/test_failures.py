"""Failures at the broker: an event, a queue, an exchange, the broker as a whole."""

import json
from collections import Counter

import pytest
from outbox_rig import wait_until
from outbox_rig.kind_fixtures import SlowLink, a_slow_link_is_waited_for, cpu_of, memory_is_bounded, metrics_show
from outbox_rig.writers import Writers

from queues import Queue
from test_delivery import bodies_by_key, sinks

QUICK = {"retry": "100ms..500ms", "max_attempts": "1000"}


def state_is(db, state: str, error: str = "", name: str = "rabbit", seconds: float = 30) -> None:
    wait_until(lambda: db.sink("state", name) == (state,) and error in (db.sink("last_error", name)[0] or ""), seconds, sinks(db))


def many(db, n: int, keys: int, begin: int = 0, kind: str = "order.made") -> None:
    db.sql("SELECT outbox.enqueue('Order', (n %% %s::int)::text, %s, jsonb_build_object('key', (n %% %s::int)::text, 'n', n)) FROM generate_series(%s::int, %s::int) AS n",
           keys, kind, keys, begin, begin + n - 1)


def first_deliveries_in_order(messages) -> int:
    """Asserts that each key's events came first in their order; returns the number of duplicates."""
    duplicates = 0
    for key, numbers in bodies_by_key(messages).items():
        first = list(dict.fromkeys(numbers))
        assert first == sorted(first), (key, numbers)
        duplicates += len(numbers) - len(first)
    return duplicates


class Steady(Writers):
    """Enqueues events of 50 keys until it is stopped, at most `most` of them: a broker may take minutes to start."""

    def __init__(self, db):
        super().__init__(1)
        self.db, self.n, self.most = db, 0, 10_000

    def write(self, writer: int) -> None:
        with self.db.connect() as session:
            while not self.stopping.wait(0.005):
                if self.n >= self.most:
                    continue
                session.execute("SELECT outbox.enqueue('Order', (n %% 50)::text, 'order.made', jsonb_build_object('key', (n %% 50)::text, 'n', n))"
                                " FROM generate_series(%s::int, %s::int) AS n", [self.n, self.n + 99])
                self.n += 100


def test_a_killed_broker_loses_nothing(db, broker, exchange):
    queue = Queue(broker, exchange)
    db.rabbit_sink("rabbit", broker, exchange=exchange, max_in_flight="500")
    with Steady(db) as traffic:
        wait_until(lambda: traffic.n > 3000, 60)
        broker.sync()
        broker.kill()
        state_is(db, "circuit open")
        assert "was lost" in db.sink("last_error", "rabbit")[0] or "refused" in db.sink("last_error", "rabbit")[0]
        broker.start()
        traffic.most = traffic.n + 2000
        wait_until(lambda: traffic.n >= traffic.most, 60)
    wait_until(lambda: db.pending() == 0, 120, sinks(db))
    messages = queue.read(queue.count())
    assert {json.loads(body)["n"] for _, _, body in messages} == set(range(traffic.n))
    assert first_deliveries_in_order(messages) <= 500, "no more than was in flight is sent again"
    assert db.sql("SELECT max(attempts) FROM outbox.events") == [(None,)]


def degraded(db, *parts: str) -> None:
    """No attempt is spent."""
    wait_until(lambda: db.sink("state", "rabbit") == ("degraded",) and all(part in str(db.sql("SELECT * FROM outbox.sinks")) for part in parts), 30, sinks(db))
    assert db.value("SELECT max(attempts) FROM outbox.events") == 0


def test_a_full_queue(db, broker, exchange):
    queue = Queue(broker, exchange, arguments={"x-max-length": 10, "x-overflow": "reject-publish"})
    db.rabbit_sink("rabbit", broker, exchange=exchange, max_attempts="1")
    many(db, 200, 40)
    degraded(db, "basic.nack", exchange)
    assert queue.count() >= 10
    messages = queue.read(200, 120)
    assert first_deliveries_in_order(messages) == 0
    state_is(db, "idle")


def test_a_full_queue_costs_a_healthy_one_few_copies(db, broker, exchange):
    """Each try is one more copy in the other queues of the exchange: one event tries, and they take turns."""
    full = Queue(broker, exchange, name=f"{exchange}-full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    healthy = Queue(broker, exchange, name=f"{exchange}-healthy")
    channel = broker.channel()
    channel.basic_publish("", full.name, b'{"key": "", "n": 0}')
    channel.connection.close()
    db.rabbit_sink("rabbit", broker, exchange=exchange, **QUICK)
    many(db, 20, 20, 1)
    wait_until(lambda: healthy.count() >= 24, 60, sinks(db))  # four tries
    copies = Counter(json.loads(body)["n"] for _, _, body in healthy.read(healthy.count()))
    assert set(copies) == set(range(1, 21)) and max(copies.values()) <= 3, copies
    degraded(db, "basic.nack")
    full.read(21, 120)
    state_is(db, "idle")
    assert db.value("SELECT count(*) FROM outbox.events") == 0


def test_a_routing_key_that_may_not_be_written(db, broker, exchange):
    """Its events wait, and do not close the channel of all others again and again."""
    queue = Queue(broker, exchange)
    broker.ctl("add_user", "clerk", "secret words")
    broker.ctl("set_permissions", "clerk", "^$", ".*", "^$")
    broker.ctl("set_topic_permissions", "clerk", exchange, "^Order", "^$")
    db.rabbit_sink("rabbit", broker, {"user": "clerk", "password": "secret words"}, exchange=exchange, **QUICK)
    db.enqueue("Secret", "s0")
    degraded(db, f'exchange "{exchange}", routing key "Secret.order.created" may not be written by user "clerk"', "ACCESS_REFUSED")

    def closed() -> int:
        return db.pg.log.read_text().count("has closed the channel")

    before, arrived = closed(), 0
    for n in range(1, 21):
        db.enqueue("Secret", f"s{n}")
        many(db, 50, 50, n * 50)
        arrived += 50
        queue.read(arrived)
    assert closed() == before
    assert len(queue.messages) == arrived, "each of them once"
    broker.ctl("clear_topic_permissions", "clerk", exchange)
    queue.read(arrived + 21, 60)
    state_is(db, "idle")
    assert db.value("SELECT count(*) FROM outbox.events") == 0


def test_a_full_queue_delays_its_own_key_only(db, broker, exchange):
    """A follower of the failed event does not overtake it."""
    full = Queue(broker, exchange, name=f"{exchange}-full", key="Full.#", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    free = Queue(broker, exchange, name=f"{exchange}-free", key="Order.#")
    db.rabbit_sink("rabbit", broker, exchange=exchange, **QUICK)
    db.sql("SELECT outbox.enqueue('Full', 'full', 'x', jsonb_build_object('key', 'full', 'n', n)) FROM generate_series(1, 20) AS n")
    for begin in range(0, 500, 10):
        many(db, 10, 10, begin)
    free.read(500)
    assert first_deliveries_in_order(free.messages) == 0
    full.read(20, 120)
    assert [json.loads(body)["n"] for _, _, body in full.messages] == list(range(1, 21))


def test_an_alarm_blocks_publishing(db, broker, exchange):
    queue = Queue(broker, exchange)
    db.rabbit_sink("rabbit", broker, exchange=exchange)
    many(db, 100, 10)
    queue.read(100)
    broker.ctl("set_vm_memory_high_watermark", "0.000001")
    try:
        many(db, 1000, 100, 100)
        state_is(db, "circuit open", "low on memory")
        assert "blocked publishing" in db.sink("last_error", "rabbit")[0]
        assert db.value("SELECT max(attempts) FROM outbox.events WHERE status = 'PENDING'") == 0
    finally:
        broker.ctl("set_vm_memory_high_watermark", "0.4")
    messages = queue.read(1100)
    assert first_deliveries_in_order(messages) == 0
    state_is(db, "idle")


def test_a_missing_exchange_is_waited_for(db, broker, exchange):
    other = Queue(broker, f"{exchange}-there")
    db.rabbit_sink("rabbit", broker, exchange=exchange + "-${header.where}", max_attempts="2", retry="10ms")
    db.sql("SELECT outbox.enqueue('Order', 'a', 'order.made', jsonb_build_object('key', 'a', 'n', n), headers => '{\"where\": \"late\"}') FROM generate_series(1, 50) AS n")
    state_is(db, "degraded", f'exchange "{exchange}-late" does not exist')
    [(status, detail, hint)] = db.sql("SELECT status, detail, hint FROM outbox.doctor() WHERE \"check\" = 'sink rabbit'")
    assert status == "warning" and "declare it, or correct option exchange" in detail and "outbox.probe('rabbit')" in hint
    db.sql("SELECT outbox.enqueue('Order', 'b', 'order.made', jsonb_build_object('key', 'b', 'n', n), headers => '{\"where\": \"there\"}') FROM generate_series(1, 50) AS n")
    assert [json.loads(body)["n"] for _, _, body in other.read(50)] == list(range(1, 51))
    assert db.sql("SELECT max(attempts), count(*) FROM outbox.events WHERE payload->>'key' = 'a'") == [(0, 50)], "no attempt is spent"
    late = Queue(broker, f"{exchange}-late")
    assert [json.loads(body)["n"] for _, _, body in late.read(50)] == list(range(1, 51))
    state_is(db, "idle")
    assert db.value("SELECT count(*) FROM outbox.events") == 0


def test_an_exchange_that_is_deleted_in_between(db, broker, exchange):
    queue = Queue(broker, exchange)
    db.rabbit_sink("rabbit", broker, exchange=exchange)
    many(db, 100, 10)
    queue.read(100)
    channel = broker.channel()
    channel.exchange_delete(exchange)
    channel.connection.close()
    many(db, 100, 10, 100)
    state_is(db, "degraded", "does not exist")
    Queue(broker, exchange)
    assert first_deliveries_in_order(queue.read(200)) == 0
    wait_until(lambda: db.pending() == 0, 30, sinks(db))
    assert db.value("SELECT count(*) FROM outbox.events") == 0


def test_a_message_that_cannot_be_routed(db, broker, exchange):
    queue = Queue(broker, exchange, key="Order.order.made")
    db.rabbit_sink("rabbit", broker, exchange=exchange, **QUICK)
    many(db, 50, 10)
    queue.read(50)
    wait_until(lambda: db.pending() == 0, 30, sinks(db))  # a success after the first failures would say that only these keys are at fault
    many(db, 20, 5, 50, kind="order.lost")
    state_is(db, "circuit open", "no queue is bound")
    error = db.value("SELECT outbox.sinks.last_error FROM outbox.sinks")
    assert f'exchange "{exchange}"' in error and '"Order.order.lost"' in error and "bind a queue" in error and "set option mandatory 'false'" in error
    channel = broker.channel()
    channel.queue_bind(queue.name, exchange, "Order.order.lost")
    channel.connection.close()
    assert first_deliveries_in_order(queue.read(70, 120)) == 0


def test_an_exchange_that_returns_what_it_delivers(db, broker, exchange):
    """The option mandatory 'false' is for it; the doctor tells its price. An exchange without a queue would return messages, too."""
    channel = broker.channel()
    channel.exchange_declare(exchange, "topic", durable=True)
    channel.connection.close()
    db.rabbit_sink("rabbit", broker, exchange=exchange, max_attempts="1")
    steps = {step: (ok, message) for step, ok, message in db.sql("SELECT step, ok, message FROM outbox.probe('rabbit', send => true)")}
    assert not steps["send"][0] and "set option mandatory 'false'" in steps["send"][1]
    db.sql("ALTER SERVER rabbit OPTIONS (ADD mandatory 'false')")
    many(db, 20, 5)
    wait_until(lambda: db.pending() == 0, 30, sinks(db))
    assert db.value("SELECT count(*) FROM outbox.events") == 0
    assert "is lost" in db.doctor("advice rabbit mandatory")[1]


def test_a_message_that_the_broker_refuses_is_found(db, broker, exchange):
    """Its neighbours are delivered, although the broker closes the channel with all of them on it."""
    queue = Queue(broker, exchange)
    broker.ctl("eval", "application:set_env(rabbit, max_message_size, 100000), persistent_term:put(max_message_size, 100000).")
    try:
        db.rabbit_sink("rabbit", broker, exchange=exchange, retry="100ms..500ms")
        before = db.pg.log.read_text().count("larger than configured max size 100000\n")
        db.sql("BEGIN")
        many(db, 100, 20)
        bad = db.enqueue("Order", "5", "order.large", json.dumps({"key": "5", "n": 1000, "x": "x" * 200_000}))
        many(db, 100, 20, 2000)
        db.sql("COMMIT")
        wait_until(lambda: db.pending() == 0, 60, sinks(db))
        messages = queue.read(queue.count())  # those that were in flight arrive again
        assert {json.loads(body)["n"] for _, _, body in messages} == {*range(100), *range(2000, 2100)}
        first_deliveries_in_order(messages)
        wait_until(lambda: db.sql("SELECT id::text, attempts FROM outbox.events WHERE status = 'FAILED'") == [(bad, 1)], 30, lambda: db.sql("SELECT id, status, attempts, last_error FROM outbox.events"))
        assert db.pg.log.read_text().count("larger than configured max size 100000\n") <= before + 3, "once with others, once alone, and as a dead letter"
        assert "larger than configured max size" in db.value("SELECT last_error FROM outbox.events WHERE status = 'FAILED'")
        metrics_show(db, "rabbit", delivered=200, dead_letters=1)
    finally:
        broker.ctl("eval", "application:set_env(rabbit, max_message_size, 134217728), persistent_term:put(max_message_size, 134217728).")


@pytest.mark.timeout(600)
def test_a_broker_that_hangs(db, broker, exchange):
    queue = Queue(broker, exchange)
    db.rabbit_sink("rabbit", broker, exchange=exchange)
    many(db, 100, 10)
    queue.read(100)
    broker.freeze()
    try:
        many(db, 1000, 100, 100)
        state_is(db, "circuit open", "has confirmed nothing for 30 s", seconds=60)
        assert db.value("SELECT max(attempts) FROM outbox.events WHERE status = 'PENDING'") == 0
    finally:
        broker.thaw()
    messages = queue.read(1100)
    wait_until(lambda: db.pending() == 0, 60, sinks(db))
    queue.read(len(messages) + queue.count())
    assert {json.loads(body)["n"] for _, _, body in queue.messages} == set(range(1100))


def test_memory_is_bounded_while_the_broker_hangs(db, broker, exchange):
    Queue(broker, exchange)
    db.rabbit_sink("rabbit", broker, exchange=exchange)
    memory_is_bounded(db, "rabbit", broker, most=80)


@pytest.mark.timeout(600)
def test_a_large_event_on_a_slow_link(db, broker, exchange):
    queue = Queue(broker, exchange)
    with SlowLink(broker.port, 60_000) as link:
        db.rabbit_sink("rabbit", broker, exchange=exchange, hosts=f"127.0.0.1:{link.port}")
        a_slow_link_is_waited_for(db, "rabbit", link)
    assert queue.count() == 3


def test_a_quorum_queue(db, broker, exchange):
    queue = Queue(broker, exchange, arguments={"x-queue-type": "quorum"})
    db.rabbit_sink("rabbit", broker, exchange=exchange)
    many(db, 2000, 100)
    assert first_deliveries_in_order(queue.read(2000)) == 0
    wait_until(lambda: db.pending() == 0, 30, sinks(db))


def test_a_removed_sink_ends_at_once(db, broker, exchange):
    """An event that waits for a hanging broker does not hold up DROP SERVER, nor a shutdown."""
    Queue(broker, exchange)
    db.rabbit_sink("rabbit", broker, exchange=exchange)
    broker.freeze()
    try:
        many(db, 10, 10)
        wait_until(lambda: db.sink("in_flight", "rabbit")[0] > 0, 30, sinks(db))
        db.sql("DROP SERVER rabbit CASCADE")
        wait_until(lambda: db.value("SELECT count(*) FROM outbox.sinks WHERE state <> 'dropped'") == 0, 30, sinks(db))
    finally:
        broker.thaw()


def test_an_idle_sink_sleeps(db, broker, exchange):
    queue = Queue(broker, exchange)
    db.rabbit_sink("rabbit", broker, exchange=exchange, heartbeat="1s")
    many(db, 1, 1)
    queue.read(1)
    assert cpu_of(db, 4) < 0.25
