"""What an operator sees in the views."""

import os
import re
import signal
import time
from datetime import datetime, timedelta

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.asleep import stop_asleep
from outbox_rig.receiver import HANG, OK, SECRET, status


def test_the_columns_of_sinks(db, receiver):
    db.webhook_sink("crm", receiver, SECRET, retry="1h", max_attempts="2")
    answers = {"bad": status(500, body=b"no"), "hang": HANG}
    receiver.mode = lambda d: answers.get(d.json()["data"], OK)
    for key in ("good", "bad", "bad", "bad", "hang"):
        db.enqueue("Order", key, payload=f'"{key}"')
    db.sql("SELECT outbox.enqueue('Order', 'later', 'e', '1', available_at => now() + interval '1 hour')")
    wait_until(lambda: db.sink("delivered, in_flight, blocked, retried") == (1, 1, 2, 1), 10, lambda: db.sink("*"))
    row = dict(zip(("kind", "target", "state", "pending", "scheduled", "estimated", "dead", "dead_total", "retried", "error"),
                   db.sink("kind, target, state, pending, scheduled, estimated, dead, dead_total, retried, last_error")))
    assert row == {"kind": "webhook", "target": receiver.url, "state": "delivering", "pending": 5, "scheduled": 1,
                   "estimated": False, "dead": 0, "dead_total": 0, "retried": 1, "error": "HTTP 500: no"}
    assert timedelta(0) < db.sink("oldest_pending_age")[0] < timedelta(seconds=30)
    assert 0 < db.sink("latency_p50")[0] <= db.sink("latency_p99")[0] < 30000

    db.sql("UPDATE outbox.events SET available_at = now() WHERE attempts > 0")
    wait_until(lambda: db.sink("dead, dead_total, retried, blocked") == (1, 1, 2, 1), 10, lambda: db.sink("*"))
    wait_until(lambda: db.sink("pending") == (4,), 10, "a dead letter not to be pending")
    [worker] = db.sql("SELECT w.shards, w.workers, w.worker, w.state, w.memory > 0, w.started_at <= w.last_loop_at, a.backend_type"
                      " FROM outbox.workers w JOIN pg_stat_activity a USING (pid) WHERE w.database = %s", db.name)
    assert worker == (256, 1, 0, "delivering", True, True, "outbox worker")


def test_the_oldest_age_does_not_depend_on_the_worker(db, receiver, setting):
    """A missing worker must be visible."""
    db.webhook_sink("crm", receiver, SECRET)
    setting("outbox.enabled", "off")
    wait_until(lambda: not db.sql("SELECT 1 FROM outbox.workers WHERE database = current_database()"), 5, "the worker to go")
    assert db.sink("oldest_pending_age") == (None,)
    db.enqueue("Order", "1")
    first = db.sink("oldest_pending_age")[0]
    wait_until(lambda: db.sink("oldest_pending_age")[0] > first + timedelta(seconds=0.5), 5, "the age to rise")


def test_an_event_that_had_a_time_is_as_old_as_its_delay(db, receiver):
    """A scheduled event has no age; one that was scheduled for a day is not a day late."""
    receiver.stop()
    db.webhook_sink("crm", receiver, SECRET)
    db.sql("SELECT outbox.enqueue('Order', '1', 'e', '1', available_at => now() + interval '1 hour')")
    assert db.sink("oldest_pending_age, scheduled, pending") == (None, 1, 1)
    db.sql("SELECT outbox.pause('crm')")
    db.sql("UPDATE outbox.events SET created_at = now() - interval '1 day', available_at = now()")
    assert timedelta(0) <= db.sink("oldest_pending_age")[0] < timedelta(hours=1)


def make_large(db) -> None:
    """A table so large that the views use the indexes instead of a scan of all rows; nearly empty pages are enough."""
    db.sql("ALTER TABLE outbox.events_pending SET (fillfactor = 10)")
    db.sql("INSERT INTO outbox.events (aggregate_type, event_type, payload) SELECT 'Nobody', 'e', '{}' FROM generate_series(1, 10000)")
    db.sql("ALTER TABLE outbox.events_pending SET (fillfactor = 90)")
    assert db.value("SELECT pg_relation_size('outbox.events_pending') / 8192") > 1500


WAITING = "SELECT waiting_since FROM outbox_internal.sink_backlog() AS b JOIN pg_foreign_server AS s ON s.oid = b.server WHERE s.srvname = 'crm'"
TRUTH = ("SELECT min(CASE WHEN available_at IS NULL OR attempts > 0 THEN created_at WHEN available_at <= now() THEN greatest(available_at, created_at) END)"
         " FROM outbox.events_pending WHERE sink = 'crm'")
KNOWN = "SELECT low_watermark FROM outbox_internal.sink_statistics()"
PENDING = "SELECT pending, scheduled, blocked, estimated FROM outbox.sinks WHERE name = 'crm'"
COUNTED = ("SELECT count(*), count(*) FILTER (WHERE available_at > now() AND attempts = 0), count(*) FILTER (WHERE blocked_by IS NOT NULL), false"
           " FROM outbox.events_pending WHERE sink = 'crm'")


def test_the_oldest_event_is_found_by_the_indexes(db, receiver):
    """Whatever it waits for: the worker tells the views which positions they can skip, and must not skip a pending
    row."""
    make_large(db)
    db.webhook_sink("crm", receiver, SECRET, retry="1h", max_attempts="9", events="mine")
    receiver.mode = lambda d: status(500) if "bad" in d.json()["data"]["key"] else OK

    def enqueue(key: str, n: int = 1, connection=None) -> int:
        """Enqueues in a transaction of its own, or on a connection. Returns the last position."""
        rows = (connection or db._connected()).execute(
            "INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload)"
            " SELECT 'Order', %s, 'mine', jsonb_build_object('key', %s::text) FROM generate_series(1, %s) RETURNING position", [key, key, n])
        return rows.fetchall()[-1][0]

    def settled(position: int) -> None:
        """The worker has seen the enqueued events, and has told the views so."""
        delivered = db.sink("delivered")[0]
        last = max(enqueue("good"), position)
        wait_until(lambda: db.sink("delivered, in_flight") == (delivered + 1, 0), 10, lambda: db.sink("*"))
        wait_until(lambda: 0 < db.value(KNOWN) <= last + 1 and db.value(KNOWN) == db.value(KNOWN), 10, lambda: db.value(KNOWN))

    def compare(what: str, seconds: float = 5) -> None:
        wait_until(lambda: db.value(WAITING) == db.value(TRUTH) and db.sql(PENDING) == db.sql(COUNTED), seconds, lambda: f"{what}: since {db.value(WAITING)}, "
                   f"it is {db.value(TRUTH)}; known below {db.value(KNOWN)}; {db.sql(PENDING)}, it is {db.sql(COUNTED)}")

    settled(0)
    assert db.value(WAITING) is None and db.value(TRUTH) is None
    with db.connect(autocommit=False) as late, db.connect(autocommit=False) as person:
        # A failing event and the events behind it; a user deletes the failing one.
        head = enqueue("bad")
        wait_until(lambda: db.sink("retried") == (1,), 10, "a failure")
        settled(enqueue("bad", n=3))
        compare("a failing event")
        db.sql("UPDATE outbox.events SET available_at = now() + interval '1 hour' WHERE position = %s", head)
        settled(0)
        compare("and when it was put off")

        # A row of another origin, which waits for outbox.adopt().
        foreign = db.value("INSERT INTO outbox.events (aggregate_type, event_type, payload, sink, position, origin, created_at)"
                           " SELECT 'Order', 'mine', '{\"key\": \"good\"}', 'crm', max(position) + 1, 1, now() - interval '2 hours' FROM outbox.events RETURNING position")
        settled(foreign)
        compare("a row of another origin")
        assert db.value(KNOWN) <= foreign
        db.sql("DELETE FROM outbox.events WHERE position = %s", foreign)

        # Rows that a session has locked while others are delivered.
        db.sql("SELECT outbox.pause('crm')")
        held = enqueue("one")
        db.sql("UPDATE outbox.events SET created_at = now() - interval '1 hour' WHERE position = %s", held)
        person.execute("SELECT FROM outbox.events WHERE position = %s FOR UPDATE", [held])
        db.sql("SELECT outbox.resume('crm')")
        settled(held)
        compare("a row that a person holds")
        person.rollback()
        wait_until(lambda: not db.sql("SELECT FROM outbox.events_pending WHERE position = %s", held), 10, "its delivery")

        # Rows that the sink gets while its worker is stopped, below the position up to which the worker has reported
        # that nothing is pending.
        db.sql("DELETE FROM outbox.events WHERE sink = 'crm'")
        settled(0)
        stalled = stop_asleep(db, "backend_type = 'outbox worker' AND datname = current_database()")
        try:
            db.sql("UPDATE outbox.events SET sink = 'crm', payload = '{\"key\": \"good\"}' WHERE position = (SELECT min(position) FROM outbox.events_pending)")
            assert db.value(TRUTH) is not None
            compare("an event that a stalled worker does not see", 30)
        finally:
            os.kill(stalled, signal.SIGCONT)
        wait_until(lambda: db.value(TRUTH) is None, 10, "its delivery")

        # A transaction that commits after the worker's cursor has passed its position, while nothing can be delivered.
        enqueue("late", connection=late)
        settled(0)
        receiver.stop()
        enqueue("other")
        wait_until(lambda: db.sink("state") == ("circuit open",), 10, "an open circuit")
        late.commit()
        compare("a late commit while the circuit is open")
        db.sql("SELECT outbox.enqueue('Order', '1', 'mine', '{\"key\": \"good\"}', available_at => now() + interval '1 hour')")
        compare("and a scheduled event")
        db.sql("SELECT outbox.pause('crm')")
        compare("and paused")


@pytest.fixture(params=["small", "large"])
def table(request, db):
    """By one scan, and by the indexes."""
    if request.param == "large":
        make_large(db)


def test_failing_events_are_not_due(table, db, receiver):
    db.webhook_sink("crm", receiver, SECRET, retry="1h", events="mine")
    receiver.mode = lambda d: status(500) if d.json()["data"] == "bad" else OK
    for _ in range(3):
        db.enqueue("Order", "bad", "mine", payload='"bad"')
    db.sql("SELECT outbox.enqueue('Order', 'later', 'mine', '1', available_at => now() + interval '1 hour')")
    wait_until(lambda: db.sink("pending, scheduled, blocked, failing, due") == (4, 1, 2, 1, 0), 20, lambda: db.sink("*"))
    assert db.sink("oldest_pending_age IS NULL, oldest_due_age") == (False, None)
    db.sql("SELECT outbox.pause('crm')")
    wait_until(lambda: db.sink("state") == ("paused",), 10, "the pause")
    db.sql("SELECT outbox.enqueue('Order', 'good', 'mine', '1'), outbox.enqueue('Order', 'good', 'mine', '1', available_at => now())")
    assert db.sink("pending, scheduled, blocked, failing, due") == (6, 1, 2, 1, 2)
    assert timedelta(0) <= db.sink("oldest_due_age")[0] < db.sink("oldest_pending_age")[0]
    db.sql("UPDATE outbox.events SET available_at = now() WHERE attempts > 0")  # it becomes due while the worker does nothing
    assert db.sink("failing, due") == (0, 3)


def test_what_waits_for_a_dropped_sink_shows(table, db, receiver):
    """Including scheduled events and dead letters."""
    for name in ("crm", "erp", "old", "other"):
        db.webhook_sink(name, receiver, SECRET, events=name)
    for name in ("crm", "erp", "old"):
        db.sql("SELECT outbox.pause(%s)", name)
    db.enqueue("Order", "1", "crm")
    db.enqueue("Order", "2", "crm")
    db.sql("SELECT outbox.enqueue('Order', '1', 'erp', '1', available_at => now() + interval '1 hour')")
    db.sql("INSERT INTO outbox.events (aggregate_type, event_type, sink, status, attempts) VALUES ('Order', 'old', 'old', 'FAILED', 1)")
    assert db.doctor("lost sink")[0] == "ok" and db.value("SELECT dropped_sink_events FROM outbox.database_metrics") == 0
    db.sql("DROP SERVER crm, erp, old CASCADE")
    dropped = "SELECT name, pending, scheduled, due, dead, estimated FROM outbox.sinks WHERE state = 'dropped' ORDER BY name"
    assert db.sql(dropped) == [("crm", 2, 0, 2, 0, False), ("erp", 1, 1, 0, 0, False), ("old", 0, 0, 0, 1, False)]
    assert db.value("SELECT dropped_sink_events FROM outbox.database_metrics") == 3
    state, detail, _ = db.doctor("lost sink")
    assert state == "error" and re.fullmatch(r'Pending events: 2 of sink "crm", which does not exist any more \(of kind webhook, .* by role "postgres"\), and 1 of 1 other\.', detail), detail
    db.webhook_sink("crm", receiver, SECRET, events="crm")
    wait_until(lambda: len(receiver.accepted()) == 2, 20, "what had waited")
    assert [row[0] for row in db.sql(dropped)] == ["erp", "old"]


def test_no_sink_is_overlooked_among_very_many_rows(db, receiver):
    """A scheduled event and a dead letter, behind thousands of other sinks' rows."""
    make_large(db)
    for name in ("a", "crm"):
        db.webhook_sink(name, receiver, SECRET, events=name)
    db.sql("ALTER TABLE outbox.events_failed SET (fillfactor = 10)")
    db.sql("INSERT INTO outbox.events (aggregate_type, event_type, sink, status, attempts) SELECT 'Order', 'a', 'a', 'FAILED', 1 FROM generate_series(1, 10000)")
    for sink, n in (("a", 2500), ("crm", 1)):
        db.sql("INSERT INTO outbox.events (aggregate_type, event_type, payload, available_at)"
               " SELECT 'Order', %s, '{}', now() + interval '1 hour' FROM generate_series(1, %s)", sink, n)
        db.sql("INSERT INTO outbox.events (aggregate_type, event_type, sink, status, attempts) VALUES ('Order', %s, %s, 'FAILED', 1)", sink, sink)
    assert db.value("SELECT pg_relation_size('outbox.events_failed') / 8192") > 1500
    assert db.sink("pending, scheduled, dead", "crm") == (1, 1, 1)
    assert db.sink("pending >= 2000, dead >= 2000, estimated", "a") == (True, True, True)


def test_very_many_failing_events_are_not_all_read(db):
    """The first ones are counted by the index, and the others are estimated."""
    make_large(db)
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER crm FOREIGN DATA WRAPPER outbox_manual OPTIONS (events 'mine')")
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, sink, attempts, last_attempt_at, available_at, last_error, created_at)"
           " SELECT 'Order', n, 'mine', 'crm', 1, now(), now() + interval '1 hour', 'no', now() - interval '1 hour' FROM generate_series(1, 40000) AS n")
    with db._connected().transaction():
        pending, failing, estimated, age = db.sink("pending, failing, estimated, oldest_pending_age")
        [(read,)] = db.sql("SELECT coalesce(idx_tup_fetch, 0) + coalesce(seq_tup_read, 0) FROM pg_stat_xact_all_tables WHERE relid = 'outbox.events_pending'::regclass")
    assert 30000 < pending < 50000 and 30000 < failing < 50000 and estimated and age >= timedelta(hours=1)
    assert read < 30000, read


def test_counters_survive_the_worker_and_begin_anew_when_told(db, pg, receiver):
    """When a worker ends, its counts stay; reset_stats() shows since when they count."""
    db.webhook_sink("crm", receiver, SECRET, retry="1ms", max_attempts="2", ordered="false")
    db.webhook_sink("erp", receiver, SECRET)
    receiver.mode = lambda d: status(422) if d.json()["data"] == "bad" else OK
    for key in ("good", "good", "bad"):
        db.enqueue("Order", key, payload=f'"{key}"')
    counters = "delivered, retried, dead_total, latency_p99 IS NULL, last_error"
    wait_until(lambda: db.sink(counters) == (2, 1, 1, False, "HTTP 422"), 10, lambda: db.sink(counters))
    since = db.sink("stats_since")[0]
    [(worker,)] = db.sql("SELECT pid FROM outbox.workers WHERE database = current_database()")
    db.sql("SELECT pg_terminate_backend(%s)", worker)
    wait_until(lambda: db.sql("SELECT pid FROM outbox.workers WHERE database = current_database() AND pid <> %s", worker), 10, "a new worker")
    assert db.sink(counters) == (2, 1, 1, False, "HTTP 422") and db.sink("stats_since")[0] == since
    db.sql("SELECT outbox.reset_stats('crm')")
    assert db.sink(counters) == (0, 0, 0, True, None) and db.sink("rate") == (0,)
    assert db.sink("stats_since")[0] > since and db.sink("stats_since", "erp")[0] == since
    assert db.sink("delivered > 0", "erp") == (True,)
    db.sql("SELECT outbox.reset_stats()")
    assert db.sink("delivered", "erp") == (0,)
    receiver.mode = OK
    db.enqueue("Order", "1")
    wait_until(lambda: db.sink("delivered") == (1,), 10, "it to count on")
    with pytest.raises(psycopg.errors.UndefinedObject) as error:
        db.sql("SELECT outbox.reset_stats('crn')")
    assert error.value.diag.message_primary == 'sink "crn" does not exist' and "'crm'" in error.value.diag.message_hint


@pytest.mark.kills_server
def test_a_failing_sink_says_so_whatever_becomes_of_its_worker(db, pg, receiver, setting):
    """State and error come from the committed rows: they outlive the worker's idle exit, the worker, a restart and a crash."""
    pid = "SELECT pid FROM outbox.workers WHERE database = current_database()"
    receiver.mode = status(422, body=b"no such customer")
    db.webhook_sink("crm", receiver, SECRET, retry="12h")
    db.enqueue("Order", "1")
    shown = ("failing", "HTTP 422: no such customer")
    wait_until(lambda: db.sink("state, last_error") == shown, 10, lambda: db.sink("*"))

    setting("outbox.worker_idle_timeout", "50ms")
    wait_until(lambda: db.value("SELECT idle FROM outbox_internal.library()") and not db.sql(pid), 20, "the worker to rest")
    assert db.sink("state, last_error") == shown
    setting("outbox.worker_idle_timeout", "0")
    worker = wait_until(lambda: db.value(pid), 10, "a worker that stays")
    assert db.sink("state, last_error") == shown

    ends = {"terminated": lambda: db.sql("SELECT pg_terminate_backend(%s)", worker), "restarted": pg.restart, "crashed": lambda: os.kill(worker, signal.SIGKILL)}

    def next_worker() -> int | None:
        try:
            return db.value(pid + " AND pid <> %s AND state = 'waiting for events'", worker)
        except psycopg.OperationalError:  # the server restarts
            return db.disconnect()

    for name, end in ends.items():
        end()
        worker = wait_until(next_worker, 20, "the next worker")
        assert db.sink("state, last_error") == shown, name
    db.sql("DELETE FROM outbox.events")
    assert db.sink("state") == ("idle",)


def test_the_state_of_a_sink_is_the_worst_of_its_workers(db, receiver, setting):
    """The endpoint refuses all keys of one of two workers, whose circuit opens; the other delivers."""
    shards = "SELECT array_agg(shards) FROM outbox.workers WHERE database = current_database()"
    setting("outbox.workers", "2")
    wait_until(lambda: db.value(shards) == [128, 128], 30, lambda: db.sql("SELECT * FROM outbox.workers"))
    refused, taken = (db.value("SELECT array_agg(n::text) FROM generate_series(1, 40) AS n WHERE hashtextextended(n::text, 0) & 1 = %s", side) for side in (1, 0))
    receiver.mode = lambda delivery: status(500) if delivery.json()["data"] in refused else OK
    db.webhook_sink("crm", receiver, SECRET)
    for key in refused:
        db.enqueue("Order", key, payload=f'"{key}"')
    wait_until(lambda: db.state() == "circuit open", 20, lambda: db.sink("*"))
    states = set()
    for key in taken:
        event = db.enqueue("Order", key, payload=f'"{key}"')
        wait_until(lambda event=event: states.add(db.state()) or event in {delivery.id for delivery in receiver.accepted()}, 20, lambda: db.sink("*"))
    assert states == {"circuit open"} and db.doctor("sink crm")[0] == "error"
    db.sql("DELETE FROM outbox.events")  # nothing is left to probe with
    setting("outbox.workers", "1")
    wait_until(lambda: db.state() == "idle", 30, lambda: db.sink("*"))
    with db.connect(autocommit=False) as session:  # a second worker again, which cannot look at the sinks yet
        session.execute("LOCK TABLE pg_foreign_server")
        setting("outbox.workers", "2")
        wait_until(lambda: len(session.execute("SELECT FROM outbox.workers WHERE database = current_database()").fetchall()) == 2, 30, "the second worker")
        assert session.execute("SELECT state FROM outbox.sinks").fetchall() == [("idle",)]


@pytest.mark.timing
def test_the_rate_and_latencies_beside_the_receivers_own(db, receiver):
    """The endpoint's own measurements, and a stopwatch up to the recording: the reported values lie in between."""
    db.webhook_sink("crm", receiver, SECRET)
    started = time.monotonic()
    taken = []
    for n in range(60):
        sent = time.monotonic()
        db.enqueue("Order", str(n))
        wait_until(lambda: db.sink("delivered") == (n + 1,), 10, "the recording", interval=0.001)
        taken.append((time.monotonic() - sent) * 1000)
    rate, seen = db.sink("rate")[0], 60 / (time.monotonic() - started)
    p50, p99 = db.sink("latency_p50, latency_p99")
    assert 0 < p50 <= p99
    arrived = [(d.at - datetime.fromisoformat(d.json()["timestamp"]).timestamp()) * 1000 for d in receiver.deliveries]
    assert sorted(arrived)[28] - 1 <= p50 <= 1.3 * sorted(taken)[30] + 5  # the body has whole milliseconds; the bucket's limit is a quarter higher
    assert sorted(arrived)[57] - 1 <= p99 <= 1.3 * max(taken) + 5
    assert 0 < rate <= 3 * seen + 10
    wait_until(lambda: db.sink("rate")[0] < rate / 2, 30, lambda: f"it to fade: {db.sink('rate')}")
