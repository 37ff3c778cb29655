"""Failures at the server: an event, a stream, a subject, the server as a whole."""

import json

import pytest
from outbox_rig import wait_until
from outbox_rig.kind_fixtures import SlowLink, a_slow_link_is_waited_for, cpu_of, memory_is_bounded, metrics_show
from outbox_rig.writers import Writers

from streams import Stream
from test_delivery import bodies_by_key, sinks


def state_is(db, state: str, error: str = "", name: str = "nats", seconds: float = 30) -> None:
    wait_until(lambda: db.sink("state", name) == (state,) and error in (db.sink("last_error", name)[0] or ""), seconds, sinks(db))


def degraded(db, *parts: str, seconds: float = 30) -> None:
    """The sink and the doctor say so, and no event has spent an attempt."""
    wait_until(lambda: db.sink("state", "nats") == ("degraded",) and all(part in str(db.sql("SELECT * FROM outbox.sinks")) for part in parts), seconds, sinks(db))
    status, detail, hint = db.doctor("sink nats")
    assert status == "warning" and all(part in detail for part in parts), (status, detail, hint)


def many(db, n: int, keys: int, begin: int = 0, kind: str = "order.made", aggregate: str = "Order") -> None:
    db.sql("SELECT outbox.enqueue(%s, %s || n %% %s::int, %s, jsonb_build_object('key', n %% %s::int, 'n', n)) FROM generate_series(%s::int, %s::int) AS n",
           aggregate, aggregate, keys, kind, keys, begin, begin + n - 1)


def numbers(messages) -> list[int]:
    return [json.loads(message.body)["n"] for message in messages]


def arrived_once_in_order(messages) -> None:
    for key, found in bodies_by_key(messages).items():
        assert found == sorted(set(found)), (key, found)


def no_attempt_was_spent(db) -> None:
    assert db.value("SELECT coalesce(max(attempts), 0) FROM outbox.events WHERE status = 'FAILED'") == 0


class Steady(Writers):
    """Enqueues events of 50 keys until it is stopped."""

    def __init__(self, db):
        super().__init__(1)
        self.db, self.n = db, 0

    def write(self, writer: int) -> None:
        with self.db.connect() as session:
            while not self.stopping.is_set():
                session.execute("SELECT outbox.enqueue('Order', (n %% 50)::text, 'order.made', jsonb_build_object('key', (n %% 50)::text, 'n', n))"
                                " FROM generate_series(%s::int, %s::int) AS n", [self.n, self.n + 99])
                self.n += 100
                self.stopping.wait(0.005)


@pytest.fixture
def sink(db, server, name):
    """Its subjects begin with `name`."""
    db.nats_sink("nats", server, subject=f"{name}.${{aggregate_type}}.${{event_type}}", max_attempts="2", retry="10ms")
    return db


def test_a_killed_server_loses_nothing(sink, server, name):
    """Each message is in the stream once: JetStream drops those that are sent again."""
    stream = Stream(server, name)
    with Steady(sink) as traffic:
        wait_until(lambda: traffic.n > 3000, 60)
        server.kill()
        state_is(sink, "circuit open")
        assert "was lost" in sink.sink("last_error", "nats")[0] or "refused" in sink.sink("last_error", "nats")[0]
        server.start()
        enough = traffic.n + 2000
        wait_until(lambda: traffic.n > enough, 60)
    wait_until(lambda: sink.pending() == 0, 120, sinks(sink))
    messages = stream.read_all()
    assert set(numbers(messages)) == set(range(traffic.n))
    arrived_once_in_order(messages)
    assert sink.value("SELECT count(*) FROM outbox.events") == 0


def test_a_restarted_server(sink, server, name):
    stream = Stream(server, name)
    with Steady(sink) as traffic:
        wait_until(lambda: traffic.n > 2000, 60)
        server.stop()
        server.start()
        enough = traffic.n + 1000
        wait_until(lambda: traffic.n > enough, 60)
    wait_until(lambda: sink.pending() == 0, 120, sinks(sink))
    messages = stream.read_all()
    assert set(numbers(messages)) == set(range(traffic.n))
    arrived_once_in_order(messages)


def test_a_missing_stream_is_waited_for(sink, server, name):
    there = Stream(server, f"{name}-there", [f"{name}.There.>"])
    many(sink, 50, 5, aggregate="Late")
    degraded(sink, f'subject "{name}.Late.order.made" is taken by no stream')
    many(sink, 50, 5, aggregate="There")
    arrived_once_in_order(there.read(50))
    assert sink.sql("SELECT max(attempts), count(*) FROM outbox.events WHERE aggregate_type = 'Late'") == [(0, 50)], "no attempt is spent"
    late = Stream(server, f"{name}-late", [f"{name}.Late.>"])
    arrived_once_in_order(late.read(50))
    state_is(sink, "idle")
    assert sink.value("SELECT count(*) FROM outbox.events") == 0


def test_a_stream_that_is_deleted_in_between(sink, server, name):
    stream = Stream(server, name)
    many(sink, 100, 10)
    stream.read(100)
    stream.delete()
    many(sink, 100, 10, 100)
    degraded(sink, "is taken by no stream")
    again = Stream(server, name)
    again.read(100)
    assert set(numbers(again.messages)) == set(range(100, 200))
    arrived_once_in_order(again.messages)
    wait_until(lambda: sink.pending() == 0, 30, sinks(sink))
    assert sink.value("SELECT count(*) FROM outbox.events") == 0


def test_a_subject_for_each_key_without_a_stream(db, server, name):
    """The memory of refused subjects is limited, and all events arrive."""
    db.nats_sink("nats", server, subject=f"{name}.${{aggregate_id}}")
    many(db, 3000, 3000)
    degraded(db, "and those of others")
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events WHERE last_attempt_at IS NOT NULL") == 3000, 60, sinks(db))
    stream = Stream(server, name)
    stream.read(3000, 120)
    wait_until(lambda: db.pending() == 0, 60, sinks(db))
    assert stream.count() == 3000


@pytest.mark.parametrize("limit, room, error", [
    ({"max_msgs": 10}, 10, "maximum messages exceeded"),
    ({"max_bytes": 100}, 0, "maximum bytes exceeded"),
    ({"max_msgs_per_subject": 10, "discard_new_per_subject": True}, 10, "maximum messages per subject exceeded"),
])
def test_a_full_stream_is_waited_for(sink, server, name, limit, room, error):
    stream = Stream(server, name, discard="new", **limit)
    many(sink, 200, 40)
    degraded(sink, error, f'stream "{name}" refuses')
    wait_until(lambda: stream.count() == room, 20, sinks(sink))
    stream.update(max_msgs=-1, max_bytes=-1, max_msgs_per_subject=-1, discard_new_per_subject=False, discard="old")
    messages = stream.read(200, 60)
    arrived_once_in_order(messages)
    state_is(sink, "idle")
    assert sink.value("SELECT count(*) FROM outbox.events") == 0


def test_a_full_stream_delays_no_other(sink, server, name):
    full, free = Stream(server, f"{name}-full", [f"{name}.Full.>"], discard="new", max_msgs=1), Stream(server, f"{name}-free", [f"{name}.Order.>"])
    many(sink, 20, 1, aggregate="Full")
    for begin in range(0, 500, 10):
        many(sink, 10, 10, begin)
    arrived_once_in_order(free.read(500))
    full.update(max_msgs=-1, discard="old")
    assert numbers(full.read(20, 60)) == list(range(20))


def test_a_stream_that_is_emptied_whenever_it_is_full(sink, server, name):
    """It takes as much as its consumer makes room for: the pause is short when something has passed. Another subject is not delayed."""
    full, free = Stream(server, f"{name}-full", [f"{name}.Full.>"], discard="new", max_msgs=100), Stream(server, f"{name}-free", [f"{name}.Order.>"])
    many(sink, 3000, 3000, aggregate="Full")
    degraded(sink, "maximum messages exceeded")

    def all_arrived() -> bool:
        if full.count() == 100:
            full.purge()
        return sink.value("SELECT count(*) FROM outbox.events_pending WHERE aggregate_type = 'Full'") == 0

    many(sink, 100, 10)
    wait_until(all_arrived, 40, sinks(sink))
    arrived_once_in_order(free.read(100))
    no_attempt_was_spent(sink)
    state_is(sink, "idle")


def test_another_stream_than_expected(db, server, name):
    stream = Stream(server, name)
    db.nats_sink("nats", server, subject=f"{name}.${{event_type}}", stream="ORDERS")
    many(db, 20, 5)
    degraded(db, "is stored by another stream than the one of option stream")
    db.sql(f"ALTER SERVER nats OPTIONS (SET stream '{name}')")
    arrived_once_in_order(stream.read(20))
    assert stream.messages[0].headers["Nats-Expected-Stream"] == name


def test_a_message_that_the_stream_finds_too_large(sink, server, name):
    stream = Stream(server, name, max_msg_size=2000)
    sink.sql("BEGIN")
    many(sink, 100, 20)
    bad = sink.enqueue("Order", "5", "order.large", json.dumps({"key": "5", "n": 1000, "x": "x" * 3000}))
    many(sink, 100, 20, 2000)
    sink.sql("COMMIT")
    stream.read(200)
    assert set(numbers(stream.messages)) == {*range(100), *range(2000, 2100)}
    wait_until(lambda: sink.sql("SELECT id::text, attempts FROM outbox.events WHERE status = 'FAILED'") == [(bad, 1)], 30, sinks(sink))
    assert "message size exceeds maximum allowed: see max_msg_size" in sink.value("SELECT last_error FROM outbox.events")
    metrics_show(sink, "nats", delivered=200, dead_letters=1)


def test_a_message_larger_than_the_servers_limit(db, make_server, name):
    """Once connected, the sink knows it. NATS would close the connection."""
    server = make_server(config="max_payload: 4096")
    stream = Stream(server, name)
    db.nats_sink("nats", server, subject=f"{name}.${{event_type}}")
    bad = db.enqueue("Order", "5", "order.large", json.dumps("x" * 5000))
    many(db, 100, 20)
    stream.read(100)
    wait_until(lambda: db.sql("SELECT id::text, attempts FROM outbox.events WHERE status = 'FAILED'") == [(bad, 1)], 30, sinks(db))
    assert "max_payload of the server is 4096" in db.value("SELECT last_error FROM outbox.events")
    log = db.pg.log.read_text()
    assert "set max_message to that" in log and "was lost" not in log[log.rindex("set max_message"):]


def test_a_subscriber_that_hides_the_missing_stream(sink, server, name):
    """The server does not say that there is no stream if somebody else has subscribed: other subjects go on."""
    there = Stream(server, f"{name}-there", [f"{name}.There.>"])

    async def subscribed(js) -> None:
        async def answer(message):
            await message.respond(b"thanks")

        client = js._nc
        await client.subscribe(f"{name}.Late.>", cb=answer)
        await client.flush()
        import asyncio
        many(sink, 20, 5, aggregate="Late")
        many(sink, 20, 5, aggregate="There")
        await asyncio.to_thread(degraded, sink, "is answered by a subscriber that is no stream")

    server.run(subscribed)
    arrived_once_in_order(there.read(20))
    late = Stream(server, f"{name}-late", [f"{name}.Late.>"])
    arrived_once_in_order(late.read(20))
    wait_until(lambda: sink.pending() == 0, 30, sinks(sink))


@pytest.mark.timeout(600)
def test_messages_without_an_answer(sink, server, name):
    """A silent subscriber hides that there is no stream: events of other subjects go on, and these wait."""
    there = Stream(server, f"{name}-there", [f"{name}.There.>"])

    async def subscribed(js) -> None:
        import asyncio

        async def silent(message):
            pass

        await js._nc.subscribe(f"{name}.Late.>", cb=silent)
        await js._nc.flush()
        many(sink, 20, 5, aggregate="Late")
        sent = 0
        while sink.sink("state", "nats") != ("degraded",):
            many(sink, 20, 5, sent, aggregate="There")
            sent += 20
            assert sent < 5000, sinks(sink)()
            await asyncio.sleep(0.3)  # traffic, not a wait
        degraded(sink, "is acknowledged by no stream within 30 s")

    server.run(subscribed)
    arrived_once_in_order(there.read_all())
    late = Stream(server, f"{name}-late", [f"{name}.Late.>"])
    arrived_once_in_order(late.read(20))
    wait_until(lambda: sink.pending() == 0, 40, sinks(sink))
    assert sink.value("SELECT count(*) FROM outbox.events") == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_stream_that_acknowledges_nothing(sink, server, name):
    """It is named, the connection stays, and one message tries it: the others are not stored again and again."""
    stream = Stream(server, name, no_ack=True, duplicate_window=1)
    assert [(ok, hint) for step, ok, message, hint in sink.sql("SELECT step, ok, message, hint FROM outbox.probe('nats')") if "(no_ack)" in message] == [
        (False, "Set no_ack of the stream to false. Its events are sent, and never count as delivered.")]
    connections = sink.pg.log.read_text().count("connected to")
    many(sink, 20, 20)
    degraded(sink, "is acknowledged by no stream within 30 s", "set no_ack", seconds=60)
    stored = stream.count()
    assert stored == 20
    wait_until(lambda: stream.count() > stored, 30, sinks(sink))  # one tries
    assert stream.count() == stored + 1
    stream.update(no_ack=False)
    wait_until(lambda: sink.pending() == 0, 120, sinks(sink))
    no_attempt_was_spent(sink)
    assert sink.pg.log.read_text().count("connected to") <= connections + 1


@pytest.mark.timeout(600)
def test_a_server_that_hangs(sink, server, name):
    """The number of messages to it is limited, and nothing of it is lost."""
    stream = Stream(server, name)
    many(sink, 100, 10)
    stream.read(100)
    server.freeze()
    try:
        sink.sql("SELECT outbox.enqueue('Order', (n % 5000)::text, 'order.made', jsonb_build_object('key', (n % 5000)::text, 'n', n, 'x', repeat('x', 20000)))"
                 " FROM generate_series(100, 10099) AS n")
        wait_until(lambda: sink.sink("in_flight", "nats")[0] > 100, 30, sinks(sink))
        state_is(sink, "circuit open", "has acknowledged a message for 30 s", seconds=60)
        assert sink.value("SELECT max(attempts) FROM outbox.events WHERE status = 'PENDING'") == 0
    finally:
        server.thaw()
    stream.read(10100, 120)
    wait_until(lambda: sink.pending() == 0, 60, sinks(sink))
    assert set(numbers(stream.messages)) == set(range(10100))
    arrived_once_in_order(stream.read_all())


def test_memory_is_bounded_while_the_server_hangs(db, server, name):
    """The sink holds at most 64 MiB of messages; each is smaller than the server's max_payload."""
    Stream(server, name)
    db.nats_sink("nats", server, subject=f"{name}.x")
    memory_is_bounded(db, "nats", server, most=400, events=1000, size=200_000)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("events", "size"), [(1, 5_000_000), (500, 10_000)])
def test_large_events_on_a_slow_link(db, make_server, name, events, size):
    """Also small ones wait in the buffers for more than 30 s."""
    server = make_server(config="max_payload: 8MB")
    stream = Stream(server, name)
    with SlowLink(server.port, 60_000) as link:
        db.nats_sink("nats", server, subject=f"{name}.${{event_type}}", max_message="8000000", hosts=f"127.0.0.1:{link.port}")
        a_slow_link_is_waited_for(db, "nats", link, events, size)
    assert stream.count() == events + 2


def test_a_silent_server_is_noticed_while_idle(db, server, name):
    stream = Stream(server, name)
    db.nats_sink("nats", server, subject=f"{name}.${{event_type}}", heartbeat="3s", connect_timeout="500ms")
    many(db, 1, 1)
    stream.read(1)
    wait_until(lambda: db.pending() == 0, 10, sinks(db))  # by then the worker has logged that it is connected
    connected = db.pg.log.read_text().count("connected to")
    assert cpu_of(db, 7) < 0.3, "an idle sink sleeps"  # two pings, which the server answers
    assert db.pg.log.read_text().count("connected to") == connected
    server.freeze()
    try:
        state_is(db, "circuit open", "answers no PING")
    finally:
        server.thaw()
    many(db, 1, 1, 1)
    stream.read(2)


def test_a_removed_sink_ends_at_once(sink, server, name):
    """An event that waits for a hanging server does not hold up DROP SERVER, nor a shutdown."""
    Stream(server, name)
    server.freeze()
    try:
        many(sink, 10, 10)
        wait_until(lambda: sink.sink("in_flight", "nats")[0] > 0, 30, sinks(sink))
        sink.sql("DROP SERVER nats CASCADE")
        wait_until(lambda: sink.value("SELECT count(*) FROM outbox.sinks WHERE state <> 'dropped'") == 0, 30, sinks(sink))
    finally:
        server.thaw()


def test_a_server_without_jetstream(db, make_server, name):
    server = make_server(jetstream=None)
    db.nats_sink("nats", server, subject=f"{name}.${{event_type}}")
    many(db, 5, 5)
    degraded(db, "enable JetStream")
    steps = {step: (ok, hint) for step, ok, hint in db.sql("SELECT step, ok, hint FROM outbox.probe('nats')")}
    assert steps["login"][0] and not steps["JetStream"][0] and "-js" in steps["JetStream"][1]


def test_jetstream_without_room(db, make_server, name):
    """The limit of the server, which is not the stream's own."""
    server = make_server(jetstream="max_mem: 100KB")
    stream = Stream(server, name, storage="memory")
    db.nats_sink("nats", server, subject=f"{name}.${{event_type}}")
    many(db, 2000, 100)
    degraded(db, "insufficient resources")
    stream.read_all()
    wait_until(lambda: _purged_until_all_are_there(db, stream), 120, sinks(db))


def _purged_until_all_are_there(db, stream: Stream) -> bool:
    stream.purge()
    return db.pending() == 0
