"""While endpoint and broker hang, everything that a user does to the database, sinks or tables takes effect at once
and loses no event."""

import os
import signal
import time

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import HANG, OK, SECRET, status

SOON = 60  # seconds, including a slow disk; a defect would take 300 s (the endpoint), for ever (the broker) or fail


@pytest.fixture
def stuck(db, kafka, receiver, aggregate):
    """A webhook that never responds and a stopped broker, each with an event in flight."""
    receiver.mode = HANG
    db.kafka_sink("main", kafka, aggregates=aggregate)
    db.enqueue(aggregate, "warm")
    wait_until(lambda: db.pending() == 0, 30, "a first event")
    db.webhook_sink("crm", receiver, SECRET, aggregates="Hook", timeout="5min")
    kafka.pause()
    try:
        db.enqueue("Hook", "1")
        db.enqueue(aggregate, "1")
        wait_hanging(db, receiver)
        yield db
    finally:
        kafka.resume()


def wait_hanging(db, receiver) -> None:
    wait_until(lambda: receiver.open_requests and db.value("SELECT in_flight FROM outbox.sinks WHERE name = 'main'") == 1, 30,
               lambda: f"both to hang: {receiver.open_requests} {db.sql('SELECT name, state, in_flight FROM outbox.sinks')}")


@pytest.fixture
def admin(pg):
    with pg.connect() as connection:
        connection.execute("SET statement_timeout = '60s'")
        connection.execute("SET allow_in_place_tablespaces = on")
        connection.execute("CREATE TABLESPACE elsewhere LOCATION ''")
        yield connection
        connection.execute("DROP TABLESPACE elsewhere")


def quickly(execute, *statements: str) -> None:
    for statement in statements:
        started = time.monotonic()
        execute(statement)
        took = time.monotonic() - started
        assert took < SOON, f"{statement} took {took:.1f} s"


def test_commands_on_tables(stuck, admin, receiver):
    """The rows in flight are recorded where they have been moved to."""
    db = stuck
    quickly(db.sql, "VACUUM FULL outbox.events_pending", "CLUSTER outbox.events_pending USING events_pending_xact",
            "REINDEX TABLE outbox.events", f"REINDEX DATABASE {db.name}", "VACUUM outbox.events", "ANALYZE outbox.events",
            "ALTER TABLE outbox.events_pending SET TABLESPACE elsewhere", "ALTER TABLE outbox.events_pending SET TABLESPACE pg_default",
            "ALTER TABLE outbox_internal.rescan_queue SET TABLESPACE elsewhere", "ALTER TABLE outbox_internal.rescan_queue SET TABLESPACE pg_default",
            "ALTER TABLE outbox.events_pending ALTER last_error SET STORAGE EXTERNAL",
            "ALTER TABLE outbox.events ADD CONSTRAINT mine CHECK (aggregate_type <> '')", "ALTER TABLE outbox.events DROP CONSTRAINT mine",
            "CREATE INDEX CONCURRENTLY mine ON outbox.events_pending (aggregate_id)", "DROP INDEX CONCURRENTLY outbox.mine",
            "ALTER EXTENSION outbox UPDATE")
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        quickly(db.sql, "ALTER EXTENSION outbox SET SCHEMA public")
    receiver.mode = OK
    receiver.release()
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events_pending WHERE sink = 'crm'") == 0, 20, "the row to leave")
    assert len(receiver.deliveries) == 1
    quickly(db.sql, "TRUNCATE outbox.events")
    db.enqueue("Hook", "1")
    wait_until(lambda: len(receiver.accepted()) == 2, 20, "delivery after TRUNCATE")


def test_commands_on_sinks(stuck, receiver):
    db = stuck
    quickly(db.sql, "ALTER SERVER crm OPTIONS (SET timeout '4min')",
            "ALTER SERVER main OPTIONS (ADD events '*')", "ALTER SERVER main VERSION '2'", "ALTER SERVER main OWNER TO CURRENT_USER",
            f"ALTER USER MAPPING FOR PUBLIC SERVER crm OPTIONS (SET secret '{SECRET}')",
            "DROP USER MAPPING FOR PUBLIC SERVER crm",
            f"CREATE USER MAPPING FOR PUBLIC SERVER crm OPTIONS (secret '{SECRET}')",
            "ALTER SERVER main RENAME TO broker", "DROP SERVER broker CASCADE", "DROP SERVER crm CASCADE")
    assert db.pending() == 2
    state, detail, hint = db.doctor("lost sink")
    assert state == "error" and '"crm"' in detail and "sink = 'crm'" in hint
    receiver.mode = OK
    db.webhook_sink("crm", receiver, SECRET, aggregates="Hook")
    wait_until(receiver.accepted, 20, "what waited for the sink that was made again")
    quickly(db.sql, "DROP EXTENSION outbox CASCADE")


def test_commands_on_the_database(stuck, pg, admin, receiver):
    db, name = stuck, stuck.name

    def next_command(statement: str, now: str) -> None:
        db.disconnect()
        quickly(admin.execute, statement)
        db.name = now
        wait_until(lambda: db.value("SELECT count(*) FROM outbox.workers WHERE database = current_database()") == 1, 20, "the next worker")
        wait_hanging(db, receiver)

    try:
        next_command(f"ALTER DATABASE {name} RENAME TO {name}_renamed", f"{name}_renamed")
        next_command(f"ALTER DATABASE {name}_renamed SET TABLESPACE elsewhere", f"{name}_renamed")
        next_command(f"ALTER DATABASE {name}_renamed SET TABLESPACE pg_default", f"{name}_renamed")
        next_command(f"CREATE DATABASE {name}_copy TEMPLATE {name}_renamed", f"{name}_renamed")
        assert db.pending() == 2
        copy = Database(pg, f"{name}_copy")
        wait_until(lambda: copy.value("SELECT count(*) FROM outbox.workers WHERE database = current_database()") == 1, 20, "its worker")
        assert copy.pending() == 2
        copy.disconnect()
    finally:
        db.disconnect()
        quickly(admin.execute, f"DROP DATABASE IF EXISTS {name}_copy WITH (FORCE)")
    quickly(admin.execute, f"DROP DATABASE {db.name}")
    db.create()  # for the fixture


def test_rename_of_a_sink(db, receiver, other):
    """Its events stay with it, in order and with its counters, whatever they wait for: a response, a time, a retry, a key."""
    db.webhook_sink("old", receiver, SECRET, retry="300ms..300ms", max_attempts="1000")
    db.enqueue("Order", "warm", payload='"warm"')
    wait_until(lambda: db.value("SELECT delivered FROM outbox.sinks") == 1, 20, "a first event")
    receiver.clear()
    receiver.mode = lambda d: status(500) if d.json()["data"] in ("head", "dead") else HANG if d.json()["data"] == "hangs" else OK
    db.enqueue("Order", "k", payload='"head"')
    db.enqueue("Order", "k", payload='"behind"')
    db.enqueue("Order", "h", payload='"hangs"')
    db.sql("SELECT outbox.enqueue('Order', 's', 'e', '\"scheduled\"', available_at => now() + interval '1 day')")
    wait_until(lambda: db.sql("SELECT retried > 0, blocked, in_flight > 0 FROM outbox.sinks") == [(True, 1, True)], 20, "them all to wait")
    quickly(db.sql, "ALTER SERVER old RENAME TO middle", "ALTER SERVER middle RENAME TO new")
    db.enqueue("Order", "k", payload='"after"')
    wait_until(lambda: db.sql("SELECT name, delivered FROM outbox.sinks") == [("new", 1)], 20, "the counters to go along")
    assert db.doctor("lost sink")[0] == "ok"
    wait_until(lambda: db.sql("SELECT pending, scheduled, blocked FROM outbox.sinks") == [(5, 1, 2)], 20,
               lambda: f"all to be seen: {db.sql('SELECT * FROM outbox.sinks')}")
    receiver.mode = OK
    wait_until(lambda: {"hangs", "after"} <= set(receiver.payloads()), 20, lambda: f"the rest, got {receiver.payloads()}")
    assert [body for body in receiver.payloads() if body in ("head", "behind", "after")] == ["head", "behind", "after"]
    db.sql("UPDATE outbox.events SET available_at = now() + interval '1 s' WHERE partition_key = 's'")
    wait_until(lambda: "scheduled" in receiver.payloads(), 20, "the scheduled one")
    wait_until(lambda: db.pending() == 0, 20, "the rows to leave")
    # The old name is free again and can be used for another sink.
    db.webhook_sink("old", other, SECRET, events="none")
    db.sql("SELECT outbox.enqueue('Order', 'o', 'e', '\"other\"', sink => 'old')")
    wait_until(other.accepted, 20, "the other sink")
    assert "other" not in receiver.payloads()


def lock_in_the_way(db, receiver):
    """(A user's connection that has locked the table, the worker that waits for it.)"""
    waiting = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND backend_type = 'outbox worker' AND wait_event_type = 'Lock'"
    db.webhook_sink("crm", receiver, SECRET)
    wait_until(lambda: db.value("SELECT pid FROM outbox.workers WHERE database = %s", db.name), 20, "the worker")
    person = db.connect(autocommit=False)
    person.execute("LOCK TABLE outbox.events_pending")
    worker = wait_until(lambda: db.value(waiting, db.name), 20, "the worker to wait")
    db.disconnect()
    return person, worker


def test_drop_database_while_the_worker_waits_for_a_lock(db, admin, receiver):
    lock_in_the_way(db, receiver)
    quickly(admin.execute, f"DROP DATABASE {db.name} WITH (FORCE)")
    db.create()  # for the fixture


@pytest.mark.timing  # of the lock wait, which is short
def test_a_worker_that_waits_for_a_lock_ends_at_once(db, receiver):
    """The worker ends at once and not when the lock wait times out; it is told to end shortly after its wait began."""
    person, worker = lock_in_the_way(db, receiver)
    started = time.monotonic()
    os.kill(worker, signal.SIGTERM)
    wait_until(lambda: not os.path.exists(f"/proc/{worker}"), 20, "it to end")
    assert time.monotonic() - started < 1.2
    person.close()
