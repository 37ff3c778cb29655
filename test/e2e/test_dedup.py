"""One dedup key makes one event: with concurrent sessions, rollbacks, and after the event has been delivered or
deleted."""

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from outbox_rig import seed, wait_until
from outbox_rig.receiver import OK, SECRET, status

SESSIONS, KEYS = 8, 50
INSERT = ("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, dedup_key)"
          " VALUES ('Order', %s, 'e', to_jsonb(%s::text), %s) RETURNING id::text")
ENQUEUE = "SELECT outbox.enqueue('Order', %s::text, 'e', to_jsonb(%s::text), dedup_key => %s)::text"


def test_sessions_at_once(db, receiver):
    """All sessions use the same keys at once, with enqueue() and INSERT; a third of them roll back the transaction
    or a savepoint. The events are delivered and deleted meanwhile."""
    db.webhook_sink("crm", receiver, SECRET)
    first = seed()

    def hammer(session: int) -> list[tuple[str, str]]:
        """The (key, id) pairs that the session committed, or that enqueue() returned."""
        dice, told = random.Random(first + session), []
        with db.connect(autocommit=False) as connection:
            for n in range(KEYS):
                key = f"key-{n}"
                connection.execute("SAVEPOINT s")
                try:
                    insert = dice.random() < 0.3
                    [(event,)] = connection.execute(INSERT if insert else ENQUEUE, [key, key, key]).fetchall()
                except psycopg.errors.UniqueViolation:
                    connection.rollback()
                    continue
                match dice.randrange(6):
                    case 0:
                        connection.rollback()
                    case 1:
                        connection.execute("ROLLBACK TO s")
                        connection.commit()
                    case _:
                        connection.commit()
                        told.append((key, event))
        return told

    with ThreadPoolExecutor(SESSIONS) as sessions:
        told = [pair for pairs in sessions.map(hammer, range(SESSIONS)) for pair in pairs]
    for n in range(KEYS):  # keys that all sessions rolled back
        told.append((f"key-{n}", db.enqueue("Order", f"key-{n}", "e", f'"key-{n}"', dedup_key=f"key-{n}")))
    assert Counter(len({event for key, event in told if key == f"key-{n}"}) for n in range(KEYS)) == {1: KEYS}
    wait_until(lambda: db.pending() == 0, 30, "delivery")
    delivered = Counter((d.json()["data"], d.id) for d in receiver.accepted())
    assert delivered == Counter(set(told))


def test_a_key_outlives_its_event(db, receiver):
    """Whether the event is deleted on delivery, kept as SENT, or FAILED: its key is known until the deduplication
    window ends."""
    receiver.mode = lambda d: status(500) if d.json()["data"] == "failed" else OK
    db.webhook_sink("drops", receiver, SECRET, events="deleted")
    db.webhook_sink("keeps", receiver, SECRET, events="sent, failed", retention="1d", max_attempts="1")
    fates = ("deleted", "sent", "failed")
    first = {fate: db.enqueue("Order", "k", fate, f'"{fate}"', dedup_key=fate) for fate in fates}
    wait_until(lambda: db.sql("SELECT status, event_type FROM outbox.events ORDER BY 1") == [("FAILED", "failed"), ("SENT", "sent")], 20,
               lambda: db.sql("SELECT status, event_type FROM outbox.events"))
    db.sql("SELECT outbox.run_maintenance()")
    for fate in fates:
        assert db.enqueue("Order", "k", fate, '"again"', dedup_key=fate) == first[fate]
        with pytest.raises(psycopg.errors.UniqueViolation, match=f"dedup_key.*{fate}"):
            db.sql(INSERT, "k", "again", fate)
    db.sql("UPDATE outbox_internal.dedup SET created_at = created_at - current_setting('outbox.dedup_window')::interval WHERE dedup_key <> 'sent'")
    db.sql("SELECT outbox.run_maintenance()")
    assert db.sql("SELECT dedup_key FROM outbox_internal.dedup") == [("sent",)]
    second = {fate: db.enqueue("Order", "k", fate, '"again"', dedup_key=fate) for fate in fates}
    assert [second[fate] == first[fate] for fate in fates] == [False, True, False]
    wait_until(lambda: {d.id for d in receiver.accepted()} == {*first.values(), *second.values()} - {first["failed"]}, 20, "the new events")
