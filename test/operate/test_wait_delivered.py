"""CALL outbox.wait_delivered() waits until an event has arrived."""

import threading
import time
import uuid

import psycopg
import pytest
from outbox_rig import patient, wait_until
from outbox_rig.receiver import SECRET, Hang, Status


def wait_for(db, event: str, timeout: str, result: list) -> None:
    try:
        with db.connect(application_name="waiter") as connection:
            connection.execute("CALL outbox.wait_delivered(%s, %s)", [event, timeout])
            result.append(None)
    except psycopg.Error as error:
        result.append(error)


def test_it_waits_without_a_snapshot_and_returns_when_the_event_has_arrived(db, receiver):
    receiver.mode = Hang()
    db.webhook_sink("crm", receiver, SECRET)
    event = db.enqueue("Order", "1")
    wait_until(lambda: receiver.deliveries, 10, "the request")
    results: list = []
    waiters = [threading.Thread(target=wait_for, args=[db, event, "60s", results]) for _ in range(5)]
    for waiter in waiters:
        waiter.start()
    asleep = ("SELECT backend_xmin::text, backend_xid::text, (SELECT count(*) FROM pg_locks AS l WHERE l.pid = a.pid AND l.relation IS NOT NULL)"
              " FROM pg_stat_activity AS a WHERE application_name = 'waiter' AND wait_event_type = 'Extension'")
    wait_until(lambda: db.sql(asleep) == [(None, None, 0)] * 5, 10, lambda: f"five waiters, asleep: {db.sql(asleep)}")
    assert not results
    # A lock that they would block
    db.sql("SET lock_timeout = '5s'")
    db.sql("ALTER TABLE outbox.events_pending SET (fillfactor = 90)")
    receiver.release()
    for waiter in waiters:
        waiter.join(patient(20))
    assert results == [None] * 5
    assert db.pending() == 0
    db.sql("CALL outbox.wait_delivered(%s)", event)  # delivered events are deleted


def test_it_fails_when_the_event_is_a_dead_letter_or_the_time_is_up(db, receiver):
    receiver.mode = lambda d: Status(400 if d.json()["data"] == "bad" else 503)
    db.webhook_sink("crm", receiver, SECRET, max_attempts="10000", retry="50ms*1000")
    late = db.enqueue("Order", "1", payload='"late"')
    began = time.monotonic()
    with pytest.raises(psycopg.Error, match="was not delivered within 00:00:01") as error:
        db.sql("CALL outbox.wait_delivered(%s, '1s')", late)
    assert error.value.sqlstate == "OB002" and time.monotonic() - began >= 1
    assert '"crm"' in error.value.diag.message_detail and "doctor()" in error.value.diag.message_hint
    db.sql("DELETE FROM outbox.events")
    db.sql("ALTER SERVER crm OPTIONS (SET max_attempts '1')")
    bad = db.enqueue("Order", "2", payload='"bad"')
    with pytest.raises(psycopg.Error, match="could not be delivered") as error:
        db.sql("CALL outbox.wait_delivered(%s)", bad)
    assert error.value.sqlstate == "OB001" and "400" in error.value.diag.message_detail and "outbox.redrive" in error.value.diag.message_hint


def test_it_fails_for_an_event_that_does_not_exist(db, receiver, setting):
    """Never enqueued, rolled back with its transaction or savepoint, or delivered and not kept for another session."""
    def refused(session: psycopg.Connection, event: object) -> str:
        with pytest.raises(psycopg.Error, match=f"there is no event {event}") as error:
            session.execute("CALL outbox.wait_delivered(%s)", [event])
        assert error.value.sqlstate == "OB003"
        return error.value.diag.message_detail

    db.webhook_sink("crm", receiver, SECRET)
    enqueue = "SELECT outbox.enqueue('Order', '1', 'e', '{}', dedup_key => %s)"
    with db.connect() as session, db.connect() as another:
        assert "never enqueued" in refused(session, uuid.uuid4())
        with session.transaction(force_rollback=True):
            rolled_back = session.execute(enqueue, [None]).fetchone()[0]
        assert refused(session, rolled_back) == "The transaction that enqueued it was rolled back."
        with session.transaction():
            kept = session.execute(enqueue, ["k"]).fetchone()[0]
            with session.transaction(force_rollback=True):
                undone = session.execute(enqueue, [None]).fetchone()[0]
        refused(session, undone)
        for _ in range(2):
            session.execute("CALL outbox.wait_delivered(%s)", [kept])
        early = another.execute(enqueue, [None]).fetchone()[0]
        wait_until(lambda: db.pending() == 0, 20, "delivery")
        with another.transaction(force_rollback=True):
            another.execute("SELECT count(outbox.enqueue('Order', '1', 'e', '{}')) FROM generate_series(1, 1024)")
        assert "not among the last 1024 events" in refused(another, early), "it was forgotten, and delivered"
        assert "not kept" in refused(another, kept)
        assert another.execute(enqueue, ["k"]).fetchone()[0] == kept
        another.execute("CALL outbox.wait_delivered(%s)", [kept])
        inserted = session.execute("INSERT INTO outbox.events (aggregate_type, event_type) VALUES ('Order', 'e') RETURNING id").fetchone()[0]
        session.execute("CALL outbox.wait_delivered(%s)", [inserted])
        session.execute("BEGIN")
        prepared = session.execute(enqueue, [None]).fetchone()[0]
        session.execute("PREPARE TRANSACTION 'wait'")
        with pytest.raises(psycopg.Error, match="not delivered within") as error:
            session.execute("CALL outbox.wait_delivered(%s, '50 ms')", [prepared])
        assert error.value.diag.message_detail == "Its transaction has not ended."
        session.execute("COMMIT PREPARED 'wait'")
        session.execute("CALL outbox.wait_delivered(%s)", [prepared])
        setting("outbox.retention", "1d")
        later = session.execute(enqueue, [None]).fetchone()[0]
        session.execute("CALL outbox.wait_delivered(%s)", [later])
        another.execute("CALL outbox.wait_delivered(%s)", [later])


def test_a_second_insert_that_was_rolled_back_hides_no_delivery(db, receiver):
    db.webhook_sink("crm", receiver, SECRET)
    insert = "INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type) VALUES (%s, 'Order', '1', 'e') ON CONFLICT DO NOTHING"
    with db.connect() as session:
        event = uuid.uuid4()
        session.execute(insert, [event])
        with session.transaction(force_rollback=True):
            session.execute(insert, [event])
        wait_until(lambda: db.pending() == 0, 20, "delivery")
        session.execute("CALL outbox.wait_delivered(%s)", [event])


def test_it_can_be_cancelled(db, receiver):
    receiver.mode = Hang()
    db.webhook_sink("crm", receiver, SECRET)
    event = db.enqueue("Order", "1")
    with pytest.raises(psycopg.errors.QueryCanceled):
        db.sql("SET statement_timeout = '200ms'")
        db.sql("CALL outbox.wait_delivered(%s)", event)
