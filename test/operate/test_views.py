"""What an operator sees in the views."""

from datetime import timedelta

from outbox_rig import wait_until
from outbox_rig.receiver import HANG, OK, SECRET, status


def test_the_columns_of_sinks(db, receiver):
    db.webhook_sink("crm", receiver, SECRET, retry="1h", max_attempts="2")
    answers = {"bad": status(500, body=b"no"), "hang": HANG}
    receiver.mode = lambda d: answers.get(d.json()["data"], OK)
    for key in ("good", "bad", "bad", "hang"):
        db.enqueue("Order", key, payload=f'"{key}"')
    db.sql("SELECT outbox.enqueue('Order', 'later', 'e', '1', available_at => now() + interval '1 hour')")
    wait_until(lambda: db.sink("delivered, in_flight, held") == (1, 1, 1), 10, lambda: db.sink("*"))
    row = dict(zip(("kind", "target", "state", "pending", "scheduled", "estimated", "failed", "failed_total", "retried", "error"),
                   db.sink("kind, target, state, pending, scheduled, estimated, failed, failed_total, retried, last_error")))
    assert row == {"kind": "webhook", "target": receiver.url, "state": "delivering", "pending": 4, "scheduled": 1,
                   "estimated": False, "failed": 0, "failed_total": 0, "retried": 1, "error": "HTTP 500: no"}
    assert timedelta(0) < db.sink("oldest_pending_age")[0] < timedelta(seconds=30)
    assert 0 < db.sink("latency_p50")[0] <= db.sink("latency_p99")[0] < 30000

    db.sql("UPDATE outbox.events SET available_at = now() WHERE attempts > 0")
    wait_until(lambda: db.sink("failed, failed_total, retried, held") == (1, 1, 2, 0), 10, lambda: db.sink("*"))
    wait_until(lambda: db.sink("pending") == (3,), 10, "a dead letter not to be pending")
    [worker] = db.sql("SELECT w.lanes, w.workers, w.worker, w.state, w.memory > 0, w.started_at <= w.last_loop_at, a.backend_type"
                      " FROM outbox.workers w JOIN pg_stat_activity a USING (pid) WHERE w.database = %s", db.name)
    assert worker == (256, 1, 0, "delivering", True, True, "outbox worker")


def test_the_oldest_age_does_not_depend_on_the_worker(db, receiver, setting):
    """A worker that is not there must show."""
    db.webhook_sink("crm", receiver, SECRET)
    setting("outbox.enabled", "off")
    wait_until(lambda: not db.sql("SELECT 1 FROM outbox.workers"), 5, "the worker to go")
    assert db.sink("oldest_pending_age") == (None,)
    db.enqueue("Order", "1")
    first = db.sink("oldest_pending_age")[0]
    wait_until(lambda: db.sink("oldest_pending_age")[0] > first + timedelta(seconds=0.5), 5, "the age to rise")


def test_an_event_that_had_a_time_is_as_old_as_its_delay(db, receiver):
    """What only waits for its time has no age; a day's schedule is no day's delay."""
    receiver.stop()
    db.webhook_sink("crm", receiver, SECRET)
    db.sql("SELECT outbox.enqueue('Order', '1', 'e', '1', available_at => now() + interval '1 hour')")
    assert db.sink("oldest_pending_age, scheduled, pending") == (None, 1, 1)
    db.sql("SELECT outbox.pause('crm')")
    db.sql("UPDATE outbox.events SET created_at = now() - interval '1 day', available_at = now()")
    assert timedelta(0) <= db.sink("oldest_pending_age")[0] < timedelta(hours=1)
