"""Sinks of kind outbox_manual, whose events a user's own dispatchers claim."""

import json
import random
import secrets
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest
from outbox_rig import wait_until

DISPATCHER = Path(__file__).with_name("manual_dispatcher.py")


@pytest.fixture(autouse=True)
def extension(db):
    db.sql("CREATE EXTENSION outbox_manual")


def manual_sink(db, name: str = "mine", **options: str) -> None:
    given = ", ".join(f"{key} '{value}'" for key, value in options.items())
    db.sql(f"CREATE SERVER {name} FOREIGN DATA WRAPPER outbox_manual OPTIONS ({given})")


def start(db, number: int) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, DISPATCHER, db.dsn, "mine", "500ms", str(number)], stderr=subprocess.PIPE, text=True)


def write(db, writer: int, events: int, keys: int) -> None:
    """Writes as an application does: the order of a key is the order in which its transactions had it locked."""
    with db.connect() as connection:
        for n in range(events):
            with connection.transaction():
                key = connection.execute("SELECT key FROM aggregates WHERE key = %s FOR UPDATE", [f"k{(n * 7 + writer) % keys}"]).fetchone()[0]
                kind = "poison" if n % 50 == 25 else "order.placed"
                connection.execute("SELECT outbox.enqueue('Order', %s::text, %s, '{}')", [key, kind])


@pytest.mark.slow
def test_dispatchers_that_are_killed_lose_nothing_and_keep_the_order(db, setting):
    manual_sink(db, retry="1ms*1000", max_attempts="3")
    db.sql("CREATE TABLE aggregates AS SELECT 'k' || n AS key FROM generate_series(0, 14) AS n")
    db.sql("CREATE TABLE handled (n bigint GENERATED ALWAYS AS IDENTITY, dispatcher int, id uuid, key text, position bigint)")
    setting("synchronous_commit", "off")  # faster, and no server is killed here
    writers = [threading.Thread(target=write, args=[db, writer, 100, 15]) for writer in range(3)]
    for writer in writers:
        writer.start()
    dispatchers = [start(db, n) for n in range(4)]
    chance, kills = random.Random(1), 0
    try:
        while any(writer.is_alive() for writer in writers) or kills < 6:
            time.sleep(0.15)  # events are claimed meanwhile
            n = chance.randrange(len(dispatchers))
            dispatchers[n].kill()
            dispatchers[n].communicate()
            kills += 1
            dispatchers[n] = start(db, 10 + kills)
        poison = 3 * sum(n % 50 == 25 for n in range(100))
        wait_until(lambda: db.pending() == 0, 60, lambda: f"{db.pending()} events are left")
    finally:
        for dispatcher in dispatchers:
            dispatcher.kill()
        errors = [dispatcher.communicate()[1] for dispatcher in dispatchers]
    assert errors == [""] * 4
    # No event is lost: each was handled, or is a dead letter after its three attempts
    dead = db.sql("SELECT event_type, attempts FROM outbox.events WHERE status = 'FAILED'")
    assert dead.count(("poison", 3)) == poison
    assert len(dead) == poison and db.value("SELECT count(DISTINCT id) FROM handled") == 300 - poison
    # First handlings are in the order of the key, except dead letters
    overtaken = db.sql("""SELECT a.key, a.position, b.position
                          FROM (SELECT key, position, min(n) AS n FROM handled GROUP BY key, position) AS a
                          JOIN (SELECT key, position, min(n) AS n FROM handled GROUP BY key, position) AS b USING (key)
                          WHERE a.position < b.position AND a.n > b.n""")
    assert overtaken == []
    # Each was acknowledged once, however often it was handled
    assert db.sink("delivered, dead_total, dead, in_flight", "mine") == (300 - poison, poison, poison, 0)


def claim(db, sink: str = "mine") -> list[tuple]:
    return db.sql("SELECT event_type, token, id FROM outbox.claim(%s)", sink)


def test_the_worker_has_nothing_to_do_with_it(db, setting):
    """It exits, and changes of such events do not start it again."""
    setting("outbox.worker_idle_timeout", "50ms")
    manual_sink(db, retention="1d", max_attempts="2")
    manual_sink(db, "audit", events="*")
    resting = "SELECT idle AND NOT EXISTS (SELECT FROM outbox.workers WHERE database = current_database()) FROM outbox_internal.library()"
    wait_until(lambda: db.value(resting), 30, "the worker to leave")
    event = db.enqueue("Order", "1", "a")
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) SELECT 'Order', n::text, 'b' FROM generate_series(2, 9) AS n")
    db.enqueue("Order", "1", "late", available_at=db.value("SELECT now() + interval '1 hour'"))
    [(_, token, _), *more] = claim(db)
    assert len(more) == 8
    db.sql("UPDATE outbox.events SET available_at = now() WHERE event_type = 'late'")
    assert db.value("SELECT outbox.nack(%s, %s, 'no', '0s')", token, event) == "PENDING"
    assert db.value("SELECT outbox.ack(%s)", token) == 8
    [(_, token, _), *_] = wait_until(lambda: claim(db), 10, "the retry")
    assert db.value("SELECT outbox.nack(%s, %s, 'no')", token, event) == "FAILED"
    assert db.value("SELECT outbox.redrive(%s, 'mine')", event)
    db.sql("DELETE FROM outbox.events WHERE event_type = 'late' AND sink = 'mine'")
    assert db.sql("SELECT * FROM outbox_internal.rescan_queue") == []
    until = time.monotonic() + 1
    while time.monotonic() < until:
        assert db.value(resting)
    assert db.doctor("worker") == ("ok", "No worker runs, and none is needed: a dispatcher claims the events of all sinks.", None)


def test_an_event_that_cannot_be_read_is_not_given_out(db):
    """Its key waits for it, and its row has the error."""
    manual_sink(db, max_attempts="3")
    db.create_contrib("pg_surgery")
    for key, kind in [("a", "before"), ("a", "broken"), ("a", "behind"), ("b", "good"), ("c", "broken"), ("d", "good")]:
        payload = json.dumps({"n": secrets.token_hex(20000)}) if kind == "broken" else "{}"
        db.enqueue("Order", key, kind, payload)
    toast = db.value("SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'outbox.events_pending'::regclass")
    db.sql(f"SELECT heap_force_kill('{toast}', (SELECT array_agg(ctid) FROM {toast}))")
    given = db.sql("SELECT aggregate_id, event_type, token FROM outbox.claim('mine')")
    assert [row[:2] for row in given] == [("a", "before"), ("b", "good"), ("d", "good")]
    assert db.value("SELECT outbox.ack(%s)", given[0][2]) == 3
    assert db.sql("SELECT event_type, last_error LIKE 'the event cannot be read: %chunk%', available_at > now() + interval '30 seconds' "
                  "FROM outbox.events WHERE event_type = 'broken'") == [("broken", True, True)] * 2
    assert claim(db) == []
    db.sql("UPDATE outbox.events SET payload = '{}', available_at = now() WHERE event_type = 'broken'")
    assert [kind for kind, *_ in claim(db)] == ["broken", "behind", "broken"]


def test_an_event_that_a_client_cannot_be_told_is_not_given_out(db):
    manual_sink(db, max_attempts="3")
    db.enqueue("Order", "a", "greek", '{"n": "\u03b1"}')
    db.enqueue("Order", "b", "good")
    with db.connect(client_encoding="LATIN1") as session:
        assert [row[0] for row in session.execute("SELECT event_type FROM outbox.claim('mine')")] == ["good"]
    assert "LATIN1" in db.value("SELECT last_error FROM outbox.events WHERE event_type = 'greek'")


def test_what_is_known_of_it_and_comes_back(db):
    manual_sink(db, retention="1d", max_attempts="1")
    events = [db.enqueue("Order", str(n), "placed") for n in range(3)]
    with pytest.raises(psycopg.Error, match="was not delivered within"):
        db.sql("CALL outbox.wait_delivered(%s, '100ms')", events[0])
    [(_, token, first), *_] = claim(db)
    assert db.sink("state, in_flight, pending", "mine") == ("delivering", 3, 3)
    assert db.value("SELECT outbox.nack(%s, %s, 'mailbox full')", token, first) == "FAILED"
    with db.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT outbox.ack(%s)", [token])
        connection.execute("ROLLBACK")  # counts no attempt
    assert db.value("SELECT outbox.ack(%s)", token) == 2
    assert db.sink("state, in_flight, pending, dead, delivered, retried, dead_total, last_error", "mine") == ("idle", 0, 0, 1, 2, 0, 1, "mailbox full")
    db.sql("CALL outbox.wait_delivered(%s)", events[2])
    metrics = db.value("SELECT outbox.metrics()")
    assert f'outbox_published_events_total{{datname="{db.name}",sink="mine"}} 2' in metrics and 'outbox_publish_latency_seconds_count' in metrics
    assert db.value("SELECT latency_p99 > 0 FROM outbox.sinks")
    # The same events again, for a sink that was renamed
    assert db.value("SELECT outbox.redrive(%s)", first)
    assert db.value("SELECT outbox.replay('mine', now() - interval '1 hour', 'infinity')") == 2
    db.sql("ALTER SERVER mine RENAME TO yours")
    again = claim(db, "yours")
    assert [id for *_, id in again] == [first] + [id for id in again_ids(db, events, first)]
    assert db.value("SELECT outbox.ack(%s)", again[0][1]) == 3
    assert db.sql("SELECT count(*), count(DISTINCT id) FROM outbox.events WHERE status = 'SENT'") == [(5, 3)]


def test_what_a_savepoint_takes_back_is_not_counted(db):
    manual_sink(db, max_attempts="3")
    for key in "abc":
        db.enqueue("Order", key)
    events = claim(db)
    with db.connect() as session:
        session.execute("BEGIN; SAVEPOINT one")
        for _, token, id in events[:2]:
            session.execute("SELECT outbox.ack(%s, ARRAY[%s]::uuid[])", [token, id])
        session.execute("ROLLBACK TO one")
        for n, (_, token, id) in enumerate(events):
            session.execute("SAVEPOINT two")
            session.execute("SAVEPOINT three")
            session.execute("SELECT outbox.ack(%s, ARRAY[%s]::uuid[])" if n else "SELECT outbox.nack(%s, %s, 'no', '1 hour')", [token, id])
            session.execute("ROLLBACK TO two" if n == 2 else "RELEASE two")
        session.execute("COMMIT")
    assert db.sink("delivered, retried, pending, in_flight", "mine") == (1, 1, 2, 1)


def test_the_free_event_of_a_blocked_key_is_found_however_many_wait_behind(db):
    """One key has a redriven event in front of one that waits for its retry, and a backlog behind that; so has another key a claimed one."""
    manual_sink(db, max_attempts="3")
    for key in "ab":
        for n in range(3):
            db.enqueue("Order", key, f"{key}{n}")
    claimed = {kind: (token, id) for kind, token, id in claim(db)}
    assert db.value("SELECT outbox.nack(%s, %s, 'no', give_up => true)", *claimed["a0"]) == "FAILED"
    assert db.value("SELECT outbox.ack(%s, ARRAY[%s]::uuid[])", *claimed["b0"]) == 1
    assert db.value("SELECT outbox.nack(%s, %s, 'no', '1 hour')", *claimed["a1"]) == "PENDING"
    assert db.value("SELECT outbox.redrive(%s)", claimed["a0"][1])
    for key in "ab":
        db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) SELECT 'Order', %s, 'behind' FROM generate_series(1, 1000)", key)
    db.enqueue("Order", "c", "c0")
    db.enqueue("Order", "d", "single", partition_key="")
    assert [kind for kind, *_ in claim(db)] == ["a0", "c0", "single"]
    assert claim(db) == []


def test_an_ack_names_some_of_the_events(db):
    """Events that the list does not name stay claimed, whatever else it contains."""
    manual_sink(db, max_attempts="3")
    for n in range(3):
        db.enqueue("Order", "1", f"placed.{n}")
    db.enqueue("Order", "2", "other")
    [(_, token, first), (_, _, second), (_, _, third), (_, _, other)] = claim(db)
    stranger = "018f0000-0000-7000-8000-000000000001"
    assert db.value("SELECT outbox.ack(%s, ARRAY[NULL, %s, %s, %s]::uuid[])", token, second, stranger, second) == 1
    assert db.value("SELECT outbox.ack(%s, ARRAY[NULL, %s]::uuid[])", token, stranger) == 0
    assert db.value("SELECT outbox.ack(%s, '{}')", token) == 0
    assert {id for (id,) in db.sql("SELECT unnest(ids) FROM outbox.leases")} == {first, third, other}
    assert db.value("SELECT outbox.ack(%s)", token) == 3
    assert db.value("SELECT count(*) FROM outbox.leases") == 0 and db.pending() == 0


def again_ids(db, events: list[str], first) -> list:
    """The delivered events in their original order."""
    return [id for (id,) in db.sql("SELECT id FROM unnest(%s::uuid[]) WITH ORDINALITY AS e (id, n) WHERE id <> %s ORDER BY n", events, first)]


@pytest.mark.parametrize("time", ["infinity", "-infinity", "2100-01-01", "290000-01-01"])
def test_a_claimed_event_that_is_postponed_is_acknowledged(db, time):
    """A user changes available_at between claim and ack: the other events of the claim too end normally."""
    manual_sink(db, ordered="true")
    for n in range(3):
        db.enqueue("Order", str(n))
    [token] = {row[0] for row in db.sql("SELECT token FROM outbox.claim('mine')")}
    db.sql("UPDATE outbox.events SET available_at = %s WHERE aggregate_id = '1'", time)
    assert db.value("SELECT outbox.ack(%s)", token) == 3
    assert db.pending() == 0
    assert db.sink("delivered, latency_p99 < 600000", "mine") == (3, True)


@pytest.mark.parametrize("time", ["infinity", "-infinity", "12000-01-01"])
def test_created_at_is_checked_when_it_is_changed(db, time):
    """As when the event is enqueued."""
    db.enqueue("Order", "1")
    with pytest.raises(psycopg.errors.DatetimeFieldOverflow, match="created_at is out of range") as error:
        db.sql("UPDATE outbox.events SET created_at = %s", time)
    assert "years 1 to 9999" in error.value.diag.message_detail
    db.sql("UPDATE outbox.events SET created_at = '2020-01-01'")


def test_a_time_of_a_damaged_event_does_not_stop_an_acknowledgement(db):
    """Written without the triggers."""
    manual_sink(db, ordered="true")
    db.enqueue("Order", "1")
    db.sql("ALTER TABLE outbox.events DISABLE TRIGGER USER; UPDATE outbox.events SET created_at = 'infinity'; ALTER TABLE outbox.events ENABLE TRIGGER USER")
    assert db.value("SELECT outbox.ack(token) FROM outbox.claim('mine')") == 1


def test_an_event_is_acknowledged_beside_a_day_that_a_view_reads(db):
    """Without a worker, outbox.ack() makes the day and drops those whose retention is over."""
    manual_sink(db, retention="1d")
    db.sql("SELECT outbox.run_maintenance()")
    day, old = (db.value("SELECT 'events_sent_' || to_char(now() AT TIME ZONE 'UTC' - %s * interval '1 day', 'YYYYMMDD')", n) for n in (0, 20))
    db.sql("SELECT outbox_internal.add_partition('outbox.events_sent', %s, 'position', t, t + interval '1 day')"
           " FROM (SELECT date_trunc('day', now(), 'UTC') - interval '20 days' AS t) AS t", old)
    db.sql(f"CREATE VIEW public.report AS SELECT id FROM outbox.{old}")
    db.sql(f"DROP TABLE outbox.{day}")
    db.enqueue("Order", "1")
    assert db.value("SELECT outbox.ack(token) FROM outbox.claim('mine')") == 1
    assert db.sql("SELECT aggregate_id FROM outbox.events WHERE status = 'SENT'") == [("1",)]


def test_an_acknowledged_event_is_deleted_where_its_day_was_detached(db):
    """The name of the day is taken by a table that is no partition."""
    manual_sink(db, retention="1d")
    db.sql("SELECT outbox.run_maintenance()")
    day = db.value("SELECT 'outbox.events_sent_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')")
    db.sql(f"ALTER TABLE outbox.events_sent DETACH PARTITION {day}")
    db.enqueue("Order", "1")
    assert db.value("SELECT outbox.ack(token) FROM outbox.claim('mine')") == 1
    db.sql(f"DROP TABLE {day}")
    db.enqueue("Order", "2")
    assert db.value("SELECT outbox.ack(token) FROM outbox.claim('mine')") == 1
    assert db.sql("SELECT aggregate_id FROM outbox.events WHERE status = 'SENT'") == [("2",)]


def test_outbox_does_without_the_extension(db):
    """What reads leases is outbox itself. The functions go, and come back, with the extension."""
    manual_sink(db, retry="1s")
    event = db.enqueue("Order", "1")
    token = db.value("SELECT token FROM outbox.claim('mine')")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        db.sql("DROP EXTENSION outbox_manual")
    db.sql("DROP EXTENSION outbox_manual CASCADE")
    assert db.value("SELECT to_regproc('outbox.claim')") is None
    assert db.value("SELECT count(*) FROM pg_proc WHERE pronamespace = 'outbox_internal'::regnamespace AND proname IN ('claim_for', 'ack_for', 'nack_for', 'manual_validator')") == 0
    assert db.sql("SELECT name, state, pending FROM outbox.sinks") == [("mine", "dropped", 1)]
    assert {status for (status,) in db.sql("SELECT status FROM outbox.doctor()")} <= {"ok", "warning", "error"}
    db.sql("SELECT * FROM outbox.story(%s)", event)
    db.sql("SELECT outbox.run_maintenance(), outbox.metrics()")
    db.sql("CREATE EXTENSION outbox_manual")
    manual_sink(db, retry="1s")
    assert db.value("SELECT id::text FROM outbox.claim('mine')") == event
    assert db.value("SELECT outbox.ack(%s)", token) == 0, "of the sink that was dropped"


def test_the_owner_of_outbox_runs_the_functions(db):
    """docs/security.md: outbox may belong to a role that is no superuser any more, and another role creates this extension."""
    db.sql("DROP EXTENSION outbox CASCADE")
    db.sql("CREATE ROLE mailer; CREATE ROLE outbox_owner SUPERUSER; SET ROLE outbox_owner; CREATE EXTENSION outbox; RESET ROLE; ALTER ROLE outbox_owner NOSUPERUSER")
    try:
        db.sql("CREATE EXTENSION outbox_manual")
        manual_sink(db, retry="1s")
        event = db.enqueue("Order", "1")
        db.sql("GRANT USAGE ON SCHEMA outbox TO mailer; GRANT USAGE ON FOREIGN SERVER mine TO mailer; SET ROLE mailer")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.sql("SELECT * FROM outbox.claim('mine')")
        db.sql("RESET ROLE; GRANT EXECUTE ON FUNCTION outbox.claim, outbox.ack TO mailer; SET ROLE mailer")
        assert [str(id) for (id,) in db.sql("SELECT id FROM outbox.claim('mine')")] == [event]
        db.sql("RESET ROLE")
        assert db.value("SELECT outbox.ack(token) FROM outbox.leases") == 1
    finally:
        db.sql("RESET ROLE; DROP EXTENSION outbox CASCADE; DROP OWNED BY mailer, outbox_owner; DROP ROLE mailer, outbox_owner; CREATE EXTENSION outbox")
