"""What outbox.doctor() reports about other users' sessions: which session, since when, and the statement that ends
it."""

import time
from contextlib import closing

import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import SECRET, status

SOON = "100 ms"  # seconds before a session is reported


@pytest.fixture
def crm(db, receiver):
    """A database that has delivered an event."""
    db.webhook_sink("crm", receiver, SECRET)
    db.enqueue("Order", "warm")
    wait_until(receiver.accepted, 20, "a first event")
    wait_until(lambda: db.pending() == 0, 10, "its recording")
    receiver.clear()
    return db


def found(db, check, pid, status="warning"):
    """What is reported about this process once it has been blocking for long enough; other tests may have sessions
    too."""
    def look():
        rows = db.sql('SELECT detail, hint FROM outbox.doctor(%s) WHERE "check" = %s AND status = %s AND detail LIKE %s',
                      SOON, check, status, f"%Session {pid} (%")
        return rows and rows[0]
    return wait_until(look, 10, lambda: str(db.complaints(SOON)))


def ended(db, check):
    wait_until(lambda: db.doctor(check, SOON)[0] == "ok", 10, lambda: str(db.doctor(check, SOON)))


@pytest.mark.parametrize("lock", ["ACCESS EXCLUSIVE", "SHARE"])
def test_a_table_lock(crm, receiver, lock):
    """The lock blocks all sessions except outbox.doctor(), which returns at once and lists the checks that it could
    not run."""
    with closing(crm.connect(autocommit=False)) as holder:
        pid = holder.info.backend_pid
        crm.enqueue("Order", "1")
        wait_until(receiver.accepted, 10, "the event before")
        wait_until(lambda: crm.pending() == 0, 10, "its recording")
        receiver.clear()
        holder.execute(f"LOCK TABLE outbox.events IN {lock} MODE")
        began = time.monotonic()
        rows = crm.sql("SELECT * FROM outbox.doctor(%s)", SOON)
        assert time.monotonic() - began < 60, "it must not wait for the lock, which is held until the end of this test"
        detail, hint = found(crm, "locks", pid, "error")
        assert lock.title().replace(" ", "") + "Lock on outbox.events_pending and " in detail and "idle in transaction" in detail
        skipped = [row[0] for row in rows if "Not looked at" in row[2]]
        assert skipped == (["row locks", "routes", "lost sink", "origin", "clock", "positions", "dead letters", "sinks", "publications"] if lock == "ACCESS EXCLUSIVE" else [])
        with closing(crm.connect()) as producer:
            producer.execute("SET lock_timeout = '50ms'")
            with pytest.raises(Exception, match="lock timeout"):
                producer.execute("SELECT outbox.enqueue('Order', '1', 'e', '{}')")
            for statement in ("SELECT outbox.resume('crm')", "SELECT state FROM outbox.sinks") if lock == "ACCESS EXCLUSIVE" else ():
                with pytest.raises(Exception, match="lock timeout"):
                    producer.execute(statement)
            assert producer.execute("SELECT state FROM outbox.workers").fetchall()
        crm.paste(hint)
        crm.enqueue("Order", "1")
        wait_until(receiver.accepted, 20, "the event")
        ended(crm, "locks")


def test_a_lock_that_is_waited_for(crm, receiver):
    """A reader, a user's ALTER TABLE behind it, and all other sessions behind that."""
    with closing(crm.connect(autocommit=False)) as reader, closing(crm.connect(autocommit=False)) as waiter:
        reader.execute("SELECT count(*) FROM outbox.events")
        waiter.execute("SET lock_timeout = '60s'")
        begun = waiter.pgconn.send_query(b"LOCK TABLE outbox.events_pending IN ACCESS EXCLUSIVE MODE")
        assert begun is None
        detail, hint = found(crm, "locks", waiter.info.backend_pid, "error")
        assert f"held up by {reader.info.backend_pid};" in detail
        crm.paste(hint)
        crm.enqueue("Order", "1")
        wait_until(receiver.accepted, 20, "the event")
        ended(crm, "locks")


def test_a_prepared_transaction_with_a_lock(crm, receiver):
    with closing(crm.connect(autocommit=False)) as holder:
        holder.execute("LOCK TABLE outbox.events_pending IN SHARE ROW EXCLUSIVE MODE")
        holder.execute("SELECT pg_current_xact_id()")
        holder.execute("PREPARE TRANSACTION 'doctor''s \"lock\"'")
    state, detail, hint = wait_until(lambda: (said := crm.doctor("locks", SOON))[0] == "error" and said, 10, lambda: str(crm.complaints(SOON)))
    assert "ShareRowExclusiveLock on outbox.events_pending" in detail
    crm.paste(hint)
    crm.enqueue("Order", "1")
    wait_until(receiver.accepted, 20, "the event")
    ended(crm, "locks")


def test_an_open_transaction_with_events(crm, receiver):
    """No other session can see its events, so it is found by its lock."""
    with closing(crm.connect(autocommit=False, application_name="shop")) as writer:
        writer.execute("SELECT outbox.enqueue('Order', '1', 'e', '\"hidden\"')")
        detail, hint = found(crm, "transactions", writer.info.backend_pid)
        assert "application shop" in detail and "idle in transaction" in detail and "hidden" not in detail
        assert crm.doctor("horizon", SOON)[0] == "ok"  # it is not reported twice
        assert crm.doctor("transactions", "1 hour")[0] == "ok"
        crm.paste(hint)
        ended(crm, "transactions")
    assert crm.pending() == 0


def test_a_locked_event_behind_blocked_ones(crm, receiver):
    """Events that wait for a failing one of their key stay in front of it."""
    receiver.mode = status(500)
    crm.webhook_sink("slow", receiver, SECRET, events="mine", retry="1h", max_attempts="9")
    for _ in range(40):
        crm.enqueue("Order", "k", "mine", sink="slow")
    wait_until(lambda: crm.sink("blocked, in_flight", "slow") == (39, 0), 20, lambda: crm.sink("*", "slow"))
    crm.sql("SELECT outbox.pause('slow')")
    event = crm.enqueue("Order", "other", "mine", sink="slow")
    with closing(crm.connect(autocommit=False)) as person:
        person.execute("SELECT FROM outbox.events WHERE id = %s AND status = 'PENDING' FOR UPDATE", [event])
        detail, _ = found(crm, "row locks", person.info.backend_pid)
        assert "1 waiting event " in detail


def test_an_old_snapshot(crm):
    with closing(crm.connect(autocommit=False)) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        detail, hint = found(crm, "horizon", reader.info.backend_pid)
        assert "snapshot" in detail
        assert crm.doctor("transactions", SOON)[0] == crm.doctor("locks", SOON)[0] == "ok"
        crm.paste(hint)
        ended(crm, "horizon")


def test_a_prepared_transaction(crm):
    """The events in it wait for its end; even without events it keeps vacuum from removing rows."""
    with closing(crm.connect(autocommit=False)) as writer:
        writer.execute("SELECT outbox.enqueue('Order', '1', 'e', '{}')")
        writer.execute("PREPARE TRANSACTION 'with events'")
        writer.execute("SELECT pg_current_xact_id()")
        writer.execute("PREPARE TRANSACTION 'without'")
    said = wait_until(lambda: (rows := crm.sql("SELECT status, detail, hint FROM outbox.doctor(%s) WHERE \"check\" = 'prepared'", SOON))
                      and len(rows) == 2 and rows, 10, lambda: str(crm.complaints(SOON)))
    assert [("'with events'" in detail, "events that are not delivered" in detail, status) for status, detail, _ in said] == [
        (True, True, "warning"), (False, False, "warning")]
    assert crm.doctor("prepared", "1 hour")[0] == "ok"
    for _, _, hint in said:
        crm.paste(hint)
    ended(crm, "prepared")
    assert crm.value("SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()") == 0
