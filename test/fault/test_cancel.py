"""A round that ends with an error while other sessions hold rows: nothing of it stays in the worker's memory."""

import os
import signal

import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import SECRET

ROWS = 4000
CANCELS = 3


@pytest.mark.kills_server  # it does not: the log contains the errors of the cancels
def test_a_round_that_is_cancelled_beside_locked_rows(db, pg, receiver, setting):
    """At debug2 the worker writes a line for each locked row that it leaves out of a batch, and each line checks for a cancel. The event of that line was in no
    batch any more, was not returned, and so its row was never sent."""
    db.webhook_sink("crm", receiver, SECRET)
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, available_at)"
           " SELECT 'Order', n::text, 'changed', '1', now() + interval '1 hour' FROM generate_series(1, %s) AS n", ROWS)
    pid = wait_until(lambda: db.value("SELECT pid FROM outbox.workers WHERE database = current_database()"), 20, "the worker")
    db.sql("SELECT outbox.pause('crm')")
    db.sql("UPDATE outbox.events_pending SET available_at = NULL")
    with db.connect(autocommit=False) as person:
        person.execute("SELECT FROM outbox.events_pending FOR UPDATE")
        for _ in range(CANCELS):
            wait_until(lambda: db.sink("state") == ("paused",), 20, "the pause")
            setting("log_min_messages", "debug2")
            with open(pg.log, errors="replace") as log:
                log.seek(0, os.SEEK_END)
                db.sql("SELECT outbox.resume('crm')")
                wait_until(lambda: "another session has locked it" in log.read(), 30, "the worker to leave out locked rows", 0.001)
                os.kill(pid, signal.SIGINT)
            setting("log_min_messages", "info")
            db.sql("SELECT outbox.pause('crm')")
        person.rollback()
    db.sql("SELECT outbox.resume('crm')")
    wait_until(lambda: db.pending() == 0, 60, lambda: f"{db.pending()} events, in flight: {db.sink('in_flight')}")
    assert len({delivery.id for delivery in receiver.accepted()}) == ROWS
    assert db.value("SELECT pid FROM outbox.workers WHERE database = current_database()") == pid, "a new worker cannot show what the former one kept"
