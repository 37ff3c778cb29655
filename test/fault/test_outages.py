"""Peers that are down, slow or mad, and processes that are killed: nothing is lost, nothing is held."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from outbox_rig import receiver as modes
from outbox_rig import wait_until
from outbox_rig.receiver import SECRET

QUICK = {"retry": "exponential 50ms..200ms"}


def state(db, sink):
    return db.value("SELECT state FROM outbox.sinks WHERE name = %s", sink)


def worker_pid(db):
    return db.value("SELECT pid FROM pg_stat_activity WHERE backend_type = 'outbox worker' AND datname = current_database()")


def enqueue_many(db, aggregate, count, keys=20):
    """One statement; the payload is the number within the whole."""
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) "
           "SELECT %s, 'key-' || n %% %s, 'e', jsonb_build_object('n', n) FROM generate_series(1, %s) n", aggregate, keys, count)


def in_order(records):
    """First arrivals by id stand in order within each key."""
    seen, last = set(), {}
    for record in records:
        if record.id in seen:
            continue
        seen.add(record.id)
        n = json.loads(record.value)["n"]
        if n <= last.get(record.key, 0):
            return False
        last[record.key] = n
    return True


def distinct(records):
    return len({record.id for record in records})


def delivered(db):
    return db.pending() == 0


# ---- the broker --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_broker_that_is_down_loses_nothing_and_holds_up_nobody(db, kafka, consume, aggregate, receiver, how):
    db.kafka_sink("main", kafka, **QUICK)
    db.webhook_sink("crm", receiver, SECRET, **QUICK)
    enqueue_many(db, aggregate, 20)
    consumer = consume(f"outbox.event.{aggregate}")
    before = consumer.take(20)
    try:
        getattr(kafka, how)()
        enqueue_many(db, aggregate, 500)
        wait_until(lambda: len(receiver.accepted()) == 520, 30, "the webhook to go on")
        wait_until(lambda: state(db, "main") == "circuit open", 30, "the circuit to open")
        assert db.sql("SELECT count(*), max(attempts) FROM outbox.events WHERE sink = 'main'") == [(500, 0)]
    finally:
        kafka.start()
    after = consumer.take_until(lambda got: distinct(got) == 500, 60, "500 events")
    assert distinct(before + after) == 520
    assert in_order(after)
    wait_until(lambda: delivered(db), 15, "the rows to leave")
    wait_until(lambda: state(db, "main") in ("idle", "delivering"), 10, "the circuit to close")


# ---- the endpoint ------------------------------------------------------------------------------------------------


def test_an_endpoint_that_refuses_connections_spends_no_attempts(db, receiver):
    db.webhook_sink("crm", receiver, SECRET, **QUICK)
    receiver.stop()
    for n in range(20):
        db.enqueue("Order", f"key-{n}")
    wait_until(lambda: state(db, "crm") == "circuit open", 20, "the circuit to open")
    assert db.sql("SELECT count(*), max(attempts) FROM outbox.events WHERE status = 'PENDING'") == [(20, 0)]
    receiver.start()
    wait_until(lambda: len(receiver.accepted()) == 20, 20, "all webhooks")
    wait_until(lambda: delivered(db), 10, "the rows to leave")


def test_an_event_that_fails_for_good_stands_as_failed_and_its_key_goes_on(db, kafka, consume, aggregate, receiver):
    db.kafka_sink("main", kafka)
    db.webhook_sink("crm", receiver, SECRET, max_attempts="3", **QUICK)
    receiver.mode = lambda delivery: modes.status(500, body=b"no such customer") if b'"bad"' in delivery.body else modes.OK
    bad = db.enqueue(aggregate, "1", payload='{"n": "bad"}')
    good = db.enqueue(aggregate, "1", payload='{"n": "good"}')
    assert [r.id for r in consume(f"outbox.event.{aggregate}").take(2)] == [bad, good]
    wait_until(lambda: delivered(db), 20, "the end of the attempts")
    assert [d.id for d in receiver.deliveries] == [bad] * 3 + [good]
    [(id, sink, attempts, error)] = db.sql("SELECT id::text, sink, attempts, last_error FROM outbox.events WHERE status = 'FAILED'")
    assert (id, sink, attempts) == (bad, "crm", 3)
    assert "500" in error and "no such customer" in error


def test_retry_after_is_honoured(db, receiver):
    db.webhook_sink("crm", receiver, SECRET, **QUICK)
    receiver.mode = lambda _: modes.status(429, retry_after=2) if len(receiver.deliveries) == 1 else modes.OK
    db.enqueue("Order", "1")
    wait_until(receiver.accepted, 20, "the second attempt")
    first, second = receiver.deliveries
    assert 2 <= second.at - first.at < 6
    assert first.id == second.id


@pytest.mark.parametrize("mode", ["garbage", "empty", "huge"])
def test_an_endpoint_that_talks_nonsense_costs_no_event_and_little_memory(db, receiver, mode):
    db.webhook_sink("crm", receiver, SECRET, max_attempts="1000", **QUICK)
    events = [db.enqueue("Order", "first")]
    wait_until(lambda: delivered(db), 20, "a first event, so that the worker has its memory")
    pid = worker_pid(db)
    before = resident(pid)
    receiver.mode = {"garbage": modes.garbage(), "empty": modes.EMPTY, "huge": modes.HUGE}[mode]
    events += [db.enqueue("Order", f"key-{n}") for n in range(3)]
    wait_until(lambda: len(receiver.deliveries) >= 3, 20, "some attempts")
    wait_until(lambda: receiver.open_requests == 0, 20, "the answers to end")
    assert resident(pid) - before < 64 << 20
    assert receiver.bytes_sent < 64 << 20
    receiver.mode = modes.OK
    wait_until(lambda: {d.id for d in receiver.accepted()} == set(events), 30, "every event")
    wait_until(lambda: delivered(db), 20, "the rows to leave")
    assert worker_pid(db) == pid
    assert db.value("SELECT count(*) FROM outbox.events WHERE status = 'FAILED'") == 0


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_redirect_is_a_failure_and_never_followed(db, rig, receiver):
    elsewhere = rig.receiver()
    db.webhook_sink("crm", receiver, SECRET, **QUICK)
    receiver.mode = modes.redirect(elsewhere.url)
    event = db.enqueue("Order", "1")
    wait_until(lambda: len(receiver.deliveries) >= 2, 20, "a second attempt")
    receiver.mode = modes.OK
    wait_until(receiver.accepted, 20, "the event")
    assert {d.id for d in receiver.deliveries} == {event}
    assert elsewhere.deliveries == []
    elsewhere.stop()


def test_nothing_is_held_while_an_endpoint_hangs(db, receiver):
    """For half a minute: no old transaction, no lock of the worker's, and people can change the very rows."""
    db.webhook_sink("crm", receiver, SECRET, timeout="60s")
    receiver.mode = modes.HANG
    for n in range(5):
        db.enqueue("Order", f"key-{n}")
    wait_until(lambda: len(receiver.deliveries) == 5, 20, "the requests")
    pid = worker_pid(db)
    until = time.monotonic() + 30
    samples = 0
    while time.monotonic() < until:
        [(age, snapshot)] = db.sql("SELECT coalesce(extract(epoch FROM clock_timestamp() - xact_start), 0)::float8, backend_xmin "
                                   "FROM pg_stat_activity WHERE pid = %s", pid)
        assert age < 1, f"the worker has a transaction open for {age:.1f} s"
        if snapshot is None:  # else it is just reading
            held = db.sql("SELECT locktype, relation::regclass::text, mode FROM pg_locks WHERE pid = %s "
                          "AND locktype IN ('tuple', 'transactionid', 'advisory')", pid)
            assert held == []
        samples += 1
        time.sleep(0.1)
    assert samples > 100
    with db.connect(autocommit=False) as person:
        assert len(person.execute("SELECT 1 FROM outbox.events WHERE status = 'PENDING' FOR UPDATE NOWAIT").fetchall()) == 5
        person.rollback()
    assert worker_pid(db) == pid
    started = time.monotonic()
    db.drop()
    assert time.monotonic() - started < 5, "DROP DATABASE waited for the endpoint"
    db.create()  # for the fixture


def test_the_worker_ends_at_once_while_an_endpoint_hangs(db, receiver):
    db.webhook_sink("crm", receiver, SECRET, timeout="60s")
    receiver.mode = modes.HANG
    db.enqueue("Order", "1")
    wait_until(lambda: receiver.deliveries, 20, "the request")
    pid = worker_pid(db)
    receiver.mode = modes.OK
    assert db.value("SELECT pg_terminate_backend(%s, 10000)", pid)
    wait_until(receiver.accepted, 30, "its successor to send the event again")


# ---- kills -------------------------------------------------------------------------------------------------------


def some_arrived(consumer, count):
    return consumer.take_until(lambda got: distinct(got) >= count, 30, f"{count} events")


@pytest.mark.kills_server
def test_kill_9_of_the_worker(db, kafka, consume, aggregate):
    db.kafka_sink("main", kafka)
    consumer = consume(f"outbox.event.{aggregate}")
    for _ in range(10):
        enqueue_many(db, aggregate, 1000)
    records = some_arrived(consumer, 1)
    os.kill(worker_pid(db), signal.SIGKILL)
    records += consumer.take_until(lambda got: distinct(records + got) == 10_000, 60, "all 10,000")
    db.disconnect()  # every session of the server fell
    wait_until(lambda: delivered(db), 20, "the rows to leave")
    assert distinct(records + consumer.quiet(1)) == 10_000


@pytest.mark.kills_server
def test_kill_9_of_the_server(db, pg, kafka, consume, aggregate):
    db.kafka_sink("main", kafka)
    consumer = consume(f"outbox.event.{aggregate}")
    enqueue_many(db, aggregate, 10_000)
    unfinished = db.connect(autocommit=False)
    unfinished.execute("SELECT outbox.enqueue(%s, 'phantom', 'e', '{}')", [aggregate])
    records = some_arrived(consumer, 1)
    pg.kill()
    pg.start()
    db.disconnect()
    records += consumer.take_until(lambda got: distinct(records + got) == 10_000, 60, "all 10,000")
    wait_until(lambda: delivered(db), 20, "the rows to leave")
    records += consumer.quiet(1)
    assert distinct(records) == 10_000 and in_order(records)
    assert all(r.key != "phantom" for r in records)


def test_a_restart_of_the_server_goes_on_where_it_was(db, pg, kafka, consume, aggregate, receiver):
    db.kafka_sink("main", kafka)
    db.webhook_sink("crm", receiver, SECRET)
    enqueue_many(db, aggregate, 2000)
    wait_until(lambda: len(receiver.accepted()) >= 10, 20, "the first webhooks")
    started = time.monotonic()
    pg.restart()
    db.disconnect()
    assert time.monotonic() - started < 15
    wait_until(lambda: delivered(db), 60, "everything to be delivered")
    records = consume(f"outbox.event.{aggregate}").take_until(lambda got: distinct(got) == 2000, 30, "2,000 events")
    assert in_order(records)
    assert len({d.id for d in receiver.accepted()}) == 2000
