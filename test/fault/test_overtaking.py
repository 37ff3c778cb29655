"""Events of a key that were returned, or are locked, are not overtaken by later events of their key."""

from outbox_rig import wait_until
from outbox_rig.receiver import HANG, OK, SECRET, Status


def types(receiver) -> list[str]:
    return [delivery.json()["type"] for delivery in receiver.accepted()]


def test_a_late_commit_does_not_overtake_what_came_back(db, receiver, setting):
    """Events that an open circuit returned lie before the cursor's former position; so do those of the late
    transaction."""
    setting("outbox.max_in_flight", "12")
    keys = [str(n) for n in range(11)]
    receiver.mode = HANG
    db.webhook_sink("crm", receiver, SECRET, timeout="5min", retry="100ms", max_attempts="100")
    first = {key: db.enqueue("Order", key, "order.first") for key in keys}
    with db.connect(autocommit=False) as late:
        second = {key: str(late.execute("SELECT outbox.enqueue('Order', %s::text, 'order.second', '{}')", [key]).fetchone()[0])
                  for key in keys}
        db.enqueue("Order", "other")  # the cursor passes the late events, and no more events fit in flight
        wait_until(lambda: receiver.open_requests == 12, 20, "all to hang")
        receiver.mode = OK  # for the next requests
        late.commit()
    receiver.release(Status(503))
    wait_until(lambda: len(receiver.accepted()) >= 23, 30, "all to arrive")
    came = [delivery.id for delivery in receiver.accepted()]
    assert [key for key in keys if came.index(first[key]) > came.index(second[key])] == []


def test_a_locked_event_is_not_overtaken_when_an_earlier_one_fails(db, receiver, setting):
    """The locked event blocks its key; then an earlier event, in flight all the time, fails, becomes the blocker,
    and is sent first."""
    setting("outbox.max_in_flight", "2")
    receiver.mode = HANG
    db.webhook_sink("crm", receiver, SECRET, timeout="5min", retry="100ms")
    db.enqueue("Order", "k", "earlier")
    db.enqueue("Order", "x", "other")
    wait_until(lambda: receiver.open_requests == 2, 20, "both to be under way")
    with db.connect(autocommit=False) as person:
        db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type)"
               " VALUES ('Order', 'k', 'locked'), ('Order', 'k', 'behind')")
        person.execute("SELECT 1 FROM outbox.events_pending WHERE event_type = 'locked' FOR UPDATE")
        receiver.mode = OK  # for the next requests
        receiver.release(lambda delivery: OK if delivery.json()["type"] == "other" else HANG)
        db.enqueue("Order", "y", "met")
        wait_until(lambda: "met" in types(receiver), 20, "the worker to have met the lock")
        receiver.release(Status(422))
        wait_until(lambda: "earlier" in types(receiver), 20, "the failed one to go")
        db.enqueue("Order", "y", "sign")
        wait_until(lambda: "sign" in types(receiver), 20, "the worker to have looked around")
        assert types(receiver) == ["other", "met", "earlier", "sign"]
    wait_until(lambda: db.pending() == 0, 20, "all to go")
    assert types(receiver) == ["other", "met", "earlier", "sign", "locked", "behind"]


def test_a_failing_event_is_not_overtaken_when_an_earlier_one_leads_for_a_while(db, receiver):
    left = {"failing": 2, "earlier": 1}

    def answer(delivery):
        kind = delivery.json()["type"]
        left[kind] = left.get(kind, 0) - 1
        return OK if left[kind] < 0 else Status(422)

    receiver.mode = answer
    db.webhook_sink("crm", receiver, SECRET, retry="200ms, 1h")
    db.enqueue("Order", "k", "earlier", available_at="2100-01-01")
    db.enqueue("Order", "k", "failing")
    db.enqueue("Order", "k", "behind")
    wait_until(lambda: left["failing"] == 0, 20, "the second failure")
    db.sql("UPDATE outbox.events SET available_at = now() WHERE event_type = 'earlier'")
    wait_until(lambda: "earlier" in types(receiver), 20, "the earlier one to go")
    db.enqueue("Order", "y", "sign")
    wait_until(lambda: "sign" in types(receiver), 20, "the worker to have looked around")
    assert types(receiver) == ["earlier", "sign"]
    db.sql("UPDATE outbox.events SET available_at = now() WHERE event_type = 'failing'")
    wait_until(lambda: db.pending() == 0, 20, "all to go")
    assert types(receiver) == ["earlier", "sign", "failing", "behind"]


def test_a_failure_is_not_recorded_for_a_key_that_was_given_meanwhile(db, receiver):
    """An event whose key a user changes while it is in flight is still to be sent with its new key, and at once."""
    receiver.mode = HANG
    db.webhook_sink("crm", receiver, SECRET, timeout="5min", retry="1h")
    db.enqueue("Order", "a", "moved")
    wait_until(lambda: receiver.open_requests == 1, 20, "it to be under way")
    db.sql("UPDATE outbox.events SET partition_key = 'b' WHERE event_type = 'moved'")
    wait_until(lambda: not db.sql("SELECT FROM outbox_internal.rescan_queue"), 20, "the worker to have read the change")
    receiver.mode = OK  # for the next request
    receiver.release(Status(422))
    wait_until(lambda: types(receiver) == ["moved"], 30, "it to be sent again")
    wait_until(lambda: db.pending() == 0, 20, "that to be recorded")
