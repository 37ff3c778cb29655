"""Events that wait until the worker has room, or until a failed claim is repeated, need no poll: here it comes after an
hour."""

import os
import signal
import time

import pytest
from outbox_rig import wait_until
from outbox_rig.asleep import stop_asleep
from outbox_rig.receiver import HANG, OK, SECRET

EVENTS = 300
SOON = 30
WORKER = "SELECT pid FROM outbox.workers WHERE database = current_database()"


@pytest.fixture(autouse=True)
def no_poll(db, setting):
    setting("outbox.poll_interval", "1h")


def enqueue_many(db, events: int) -> None:
    db.sql(f"SELECT outbox.enqueue('Order', n::text, 'order.created', to_jsonb(n)) FROM generate_series(1, {events}) AS n")


def all_delivered(db, receiver, events: int) -> None:
    wait_until(lambda: len({d.id for d in receiver.accepted()}) == events and db.pending() == 0, SOON,
               lambda: f"{db.pending()} of {events} events to leave: {db.sql('SELECT * FROM outbox.sinks')}")


@pytest.mark.parametrize("max_in_flight", [1, 2, 5])
def test_a_recording_makes_room(db, receiver, setting, max_in_flight):
    """The recorded events give their room to the next ones."""
    setting("outbox.max_in_flight", str(max_in_flight))
    db.webhook_sink("crm", receiver, SECRET)
    enqueue_many(db, EVENTS)
    all_delivered(db, receiver, EVENTS)


def test_a_kafka_sink(db, kafka, consume, aggregate, setting):
    setting("outbox.max_in_flight", "5")
    db.kafka_sink("main", kafka)
    db.sql(f"SELECT outbox.enqueue('{aggregate}', n::text, 'order.created', to_jsonb(n)) FROM generate_series(1, {EVENTS}) AS n")
    assert len(consume(f"outbox.event.{aggregate}").take(EVENTS, SOON)) == EVENTS


def test_a_commit_while_there_is_no_room(db, receiver, setting):
    """All that could be claimed is in flight when another event is committed: no earlier event was left unread."""
    setting("outbox.max_in_flight", "5")
    db.webhook_sink("crm", receiver, SECRET)
    receiver.mode = HANG
    enqueue_many(db, 5)
    wait_until(lambda: len(receiver.deliveries) == 5, SOON, "five requests")
    db.enqueue("Order", "late")
    wait_until(lambda: db.value("SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = (" + WORKER + ")"), SOON,
               "the worker to have looked at it")
    receiver.mode = OK
    receiver.release()
    all_delivered(db, receiver, 6)


def test_recordings_that_wait_for_locks(db, receiver, setting):
    """A user holds the rows of all events that the worker may hold: no room comes from recording them, and the worker
    does not look for it without a pause."""
    setting("outbox.max_in_flight", "2")
    db.webhook_sink("crm", receiver, SECRET)
    receiver.mode = HANG
    enqueue_many(db, 6)
    wait_until(lambda: len(receiver.deliveries) == 2, SOON, "two requests")
    with db.connect(autocommit=False) as person:
        person.execute("SELECT FROM outbox.events_pending FOR UPDATE")
        receiver.mode = OK
        receiver.release()
        wait_until(lambda: len(receiver.accepted()) == 2, SOON, "their answers")
        time.sleep(1)
        before = db.transactions()
        time.sleep(3)
        assert db.transactions() - before < 100, "a busy loop"
        person.rollback()
    all_delivered(db, receiver, 6)


def test_a_lock_on_the_table(db, receiver):
    """A claim that fails is repeated after its pause."""
    db.webhook_sink("crm", receiver, SECRET)
    db.enqueue("Order", "first")
    all_delivered(db, receiver, 1)
    log = db.pg.log.stat().st_size
    with db.connect(autocommit=False) as person:
        person.execute("SELECT outbox.enqueue('Order', 'second', 'order.created', '{}')")
        with db.connect(autocommit=False) as other:
            # Takes its lock after the commit below and before the worker, which waits behind it and gives up.
            worker = stop_asleep(db, "backend_type = 'outbox worker' AND datname = current_database()")
            person.commit()
            other.execute("LOCK TABLE outbox.events IN ACCESS EXCLUSIVE MODE")
            os.kill(worker, signal.SIGCONT)
            wait_until(lambda: "outbox waits for a lock" in db.pg.logged(log), SOON, "the worker to give up")
            other.rollback()
    all_delivered(db, receiver, 2)
