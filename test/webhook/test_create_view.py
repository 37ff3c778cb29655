"""A view of outbox.create_view() while outbox delivers: its words tell an application what has become of its rows, and
its statements keep the order of a key."""

from outbox_rig import wait_until
from outbox_rig.receiver import OK, Delivery, Status, status

VIEW = """SELECT outbox.create_view('public.outbox', '{"event_id": "id", "aggregate_type": "aggregate_type", "aggregate_id": "aggregate_id",
  "event_type": "event_type", "payload": "payload text", "state": "status", "tries": "attempts", "due_at": "available_at", "sent_at": "sent_at",
  "error": "last_error"}', '{NEW,DONE,ERROR}')"""
TYPE = '{"X-Event-Type": "${event_type}"}'
INSERT = """INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, state, due_at)
  SELECT 'Order', k, e, json_build_object('key', k)::text, 'NEW', now() - s * interval '1 s' FROM (SELECT %s::text, %s::text, %s::int) AS i (k, e, s)"""


def refuses_some(delivery: Delivery) -> Status:
    return status(500, body=b"not today") if "refused" in delivery.headers["x-event-type"] else OK


def test_a_view_tells_what_has_become_of_its_rows(db, rig):
    with rig.receiver() as receiver:
        receiver.mode = refuses_some
        db.sql(VIEW)
        for aggregate, event in (("1", "accepted"), ("2", "refused"), ("3", "accepted")):
            db.sql(INSERT, aggregate, event, 0)
        assert db.sql("SELECT state, count(*) FROM outbox WHERE due_at <= now() GROUP BY 1") == [("NEW", 3)]
        db.webhook_sink("hook", receiver.url, max_attempts="2", retry="10ms..10ms", retention="1h",
                        headers=TYPE)
        wait_until(lambda: db.value("SELECT count(*) FROM outbox WHERE state = 'NEW'") == 0, 20, lambda: db.sql("SELECT * FROM outbox"))
    assert db.sql("SELECT aggregate_id, state, tries, sent_at IS NOT NULL, error LIKE '%500%' FROM outbox ORDER BY 1") == [
        ("1", "DONE", 0, True, None), ("2", "ERROR", 2, False, True), ("3", "DONE", 0, True, None)]
    # As its operator would by hand: the dead letter is sent again.
    with rig.receiver() as receiver:
        db.sql(f"ALTER SERVER hook OPTIONS (SET url '{receiver.url}')")
        db.sql("UPDATE outbox SET state = 'NEW', tries = 0 WHERE state = 'ERROR'")
        wait_until(lambda: db.value("SELECT state FROM outbox WHERE aggregate_id = '2'") == "DONE", 20, lambda: db.sql("SELECT * FROM outbox"))


def test_events_with_a_due_time_in_the_past_keep_the_order_of_their_key(db, rig):
    """Many applications write available_at = now(), by clocks that differ. Such an event is no scheduled one."""
    with rig.receiver() as receiver:
        failed: set[str] = set()
        receiver.mode = lambda delivery: OK if delivery.json()["data"]["key"] in failed or failed.add(delivery.json()["data"]["key"]) else status(500)
        db.sql(VIEW)
        for key in ("waits for the sink", "comes later"):
            for number in range(1, 6):
                db.sql(INSERT, key, f"e{number}", 10 * number)
            if key == "waits for the sink":
                db.webhook_sink("hook", receiver.url, retry="300ms..300ms", headers=TYPE)
        wait_until(lambda: db.value("SELECT count(*) FROM outbox") == 0, 20, lambda: db.sql("SELECT * FROM outbox"))
        arrived = [(delivery.json()["data"]["key"], delivery.headers["x-event-type"]) for delivery in receiver.deliveries if delivery.accepted()]
    for key in ("waits for the sink", "comes later"):
        assert [event for of, event in arrived if of == key] == [f"e{n}" for n in range(1, 6)]
    assert len(failed) == 2
