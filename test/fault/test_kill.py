"""kill -9 of any process in the middle of a burst: every committed event arrives, no other does, all in order."""

import contextlib

import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import SECRET
from outbox_rig.traffic import Traffic
from wal import nobody_flushes

MAX_IN_FLIGHT = 200  # small, so that the bound on duplicates is tested


@pytest.fixture(autouse=True)
def small_flights(pg):
    pg.set("outbox.max_in_flight", str(MAX_IN_FLIGHT))
    yield
    pg.wait_ready()
    pg.reset("outbox.max_in_flight")


def kill_worker(db, pg, kafka):
    """The postmaster then restarts all processes of the server."""
    pg.kill_child(db.value("SELECT pid FROM outbox.workers WHERE database = %s", db.name))


def kill_postmaster(db, pg, kafka):
    """Kills only the postmaster: its children must exit by themselves."""
    pg.kill_postmaster()
    pg.start()


def kill_server(db, pg, kafka):
    """Kills all its processes at once."""
    pg.kill()
    pg.start()


def stop_immediately(db, pg, kafka):
    pg.restart("immediate")


def kill_broker(db, pg, kafka):
    kafka.kill()
    wait_until(lambda: db.value("SELECT state = 'circuit open' FROM outbox.sinks WHERE name = 'main'"), 20, "an open circuit")
    kafka.start()


def slow(fault):
    return pytest.param(fault, marks=pytest.mark.slow)


@pytest.mark.kills_server
@pytest.mark.parametrize("fault", [kill_worker, pytest.param(kill_broker, marks=pytest.mark.librdkafka), *map(slow, (kill_postmaster, kill_server, stop_immediately))],
                         ids=lambda fault: fault.__name__)
def test_all_that_was_committed_arrives(db, pg, kafka, consume, aggregate, receiver, fault):
    db.kafka_sink("main", kafka)
    db.webhook_sink("crm", receiver, SECRET)
    consumer = consume(f"outbox.event.{aggregate}")
    with Traffic(db, aggregate) as traffic:
        records = consumer.take(200, 60)
        fault(db, pg, kafka)
        db.disconnect()  # the server may have ended the session
        before = traffic.committed
        wait_until(lambda: traffic.committed >= before + 100, 60, "the writers to go on")
    traffic.drain()
    traffic.check(records + consumer.take_rest(), MAX_IN_FLIGHT)
    traffic.check(list(receiver.deliveries), MAX_IN_FLIGHT)


def kill_server_before_it_flushes(db, pg, kafka):
    """The worker's recordings are only in memory, except for what it has flushed itself."""
    kill_server(db, pg, kafka)


@pytest.mark.kills_server
@pytest.mark.parametrize("fault", [kill_worker, *map(slow, (kill_server_before_it_flushes, stop_immediately))], ids=lambda fault: fault.__name__)
def test_duplicates_of_a_drain(db, pg, kafka, consume, aggregate, setting, fault):
    """A large backlog is being sent: the events that are sent twice were in flight or not durably recorded."""
    backlog = 20000
    db.kafka_sink("main", kafka)
    consumer = consume(f"outbox.event.{aggregate}")
    db.enqueue(aggregate, "first")
    consumer.take(1)
    wait_until(lambda: db.pending() == 0, 30, "the first event to leave")
    pg.set("outbox.enabled", "off")
    try:
        wait_until(lambda: db.value("SELECT count(*) = 0 FROM outbox.workers WHERE database = current_database()"), 20, "the worker to leave")
        db.sql(f"""INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload)
                   SELECT '{aggregate}', n % 100, 'order.changed', '{{}}' FROM generate_series(1, {backlog}) AS n""")
        expected = {event for event, in db.sql("SELECT id::text FROM outbox.events")}
        for _ in range(64):  # so that the worker's commits and flushes are independent of the backlog's
            db.sql("SELECT pg_current_xact_id()")
    finally:
        pg.reset("outbox.enabled")
    with nobody_flushes(db) if fault is kill_server_before_it_flushes else contextlib.nullcontext():
        records = consumer.take(1500, 60)
        assert db.pending() > 0, "the backlog is too small"
        fault(db, pg, kafka)
    db.disconnect()
    pg.reset("outbox.max_in_flight")  # the rest may be faster
    wait_until(lambda: db.pending() == 0, 60, "the rest to leave")
    records += consumer.take(backlog - len(records), 60)
    wait_until(lambda: records.extend(consumer.quiet(0.2)) or consumer.at_end(), 30, "the end of the topic")
    assert {record.id for record in records} == expected
    assert len(records) - backlog <= MAX_IN_FLIGHT
