"""available_at from the clock of an application: "now" stays "now" when that clock is some seconds ahead."""

import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import SECRET, status

AHEAD = {"behind": "-300 ms", "equal": "0", "ahead": "300 ms", "far ahead": "2 s"}
INSERT = """INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, available_at)
            VALUES ('Order', 'k', 'order.changed', %s::jsonb, clock_timestamp() + %s::interval)"""
ENQUEUE = "SELECT outbox.enqueue('Order', 'k', 'order.changed', %s::jsonb, available_at => clock_timestamp() + %s::interval)"
COPIES = INSERT.replace("INSERT INTO outbox.events (", "INSERT INTO outbox.events (id, ").replace("VALUES (", "VALUES (gen_random_uuid(), ")


@pytest.mark.parametrize("statement", [INSERT, ENQUEUE, COPIES], ids=["insert", "enqueue", "own id"])
@pytest.mark.parametrize("ahead", AHEAD)
def test_events_of_a_key_keep_their_order(db, rig, ahead, statement):
    """Every other event has a time, and those have none that follow; in two sinks."""
    receivers = [rig.receiver(secret=SECRET), rig.receiver(secret=SECRET)]
    for n, receiver in enumerate(receivers):
        db.webhook_sink(f"crm{n}", receiver, SECRET)
    for n in range(6):
        db.sql(statement, str(n), AHEAD[ahead] if n % 2 == 0 else None)
    for receiver in receivers:
        wait_until(lambda: len(receiver.accepted()) == 6, 20, "delivery")
        assert [d.json()["data"] for d in receiver.accepted()] == list(range(6))
        receiver.stop()


def test_such_an_event_blocks_its_key(db, receiver):
    """It fails once."""
    answers = iter([status(500)])
    receiver.mode = lambda d: next(answers, status(200))
    db.webhook_sink("crm", receiver, SECRET, retry="1s", max_attempts="10")
    for n in range(3):
        db.sql(INSERT, str(n), "2 s" if n == 0 else None)
    wait_until(lambda: len(receiver.accepted()) == 3, 30, "delivery")
    assert [d.json()["data"] for d in receiver.accepted()] == [0, 1, 2]


def test_a_minute_ahead_is_a_schedule(db, receiver):
    db.webhook_sink("crm", receiver, SECRET)
    db.sql(INSERT, "1", "1 min")
    db.sql(INSERT, "2", None)
    wait_until(lambda: len(receiver.accepted()) == 1, 20, "delivery")
    assert receiver.accepted()[0].json()["data"] == 2
    assert db.sink("scheduled", "crm") == (1,)


def test_what_an_update_or_a_retry_sets_stays(db):
    """Only INSERT takes the time for a clock's."""
    db.enqueue("Order", "k")
    db.sql("UPDATE outbox.events SET available_at = clock_timestamp() + interval '1 s'")
    assert db.value("SELECT available_at IS NOT NULL FROM outbox.events")
    db.sql(INSERT, "1", "-1 hour")
    assert db.value("SELECT available_at FROM outbox.events WHERE payload = '1'") is not None
