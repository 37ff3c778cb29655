"""Sinks that are created, changed and dropped while events are delivered."""

from outbox_rig import wait_until
from outbox_rig.receiver import HANG, SECRET


def test_create_alter_and_drop_server_take_effect_at_once(db, other, receiver, setting):
    setting("outbox.poll_interval", "1h")
    db.enqueue("Order", "1", payload="1")
    wait_until(lambda: db.sql("SELECT 1 FROM outbox.workers WHERE database = current_database()"), 5, "the worker")
    db.webhook_sink("crm", receiver, SECRET)
    wait_until(lambda: receiver.payloads() == [1], 2, "CREATE SERVER, and what waited for it")

    db.sql(f"ALTER SERVER crm OPTIONS (SET url '{other.url}')")
    db.enqueue("Order", "1", payload="2")
    wait_until(lambda: other.payloads() == [2], 2, "ALTER SERVER of the url")
    db.sql("ALTER SERVER crm OPTIONS (ADD headers '{\"X-Tenant\": \"42\"}')")
    db.enqueue("Order", "1", payload="3")
    wait_until(lambda: other.payloads() == [2, 3], 2, "ALTER SERVER of another option")
    assert other.deliveries[-1].headers["x-tenant"] == "42"
    db.sql("ALTER SERVER crm RENAME TO sales")
    db.enqueue("Order", "1", payload="4")
    wait_until(lambda: other.payloads() == [2, 3, 4], 2, "the new name")
    wait_until(lambda: db.sink("pending", "sales") == (0,), 10, "the rows to leave")
    db.sql("DROP SERVER sales CASCADE")
    wait_until(lambda: db.value("SELECT state FROM outbox.workers WHERE database = %s", db.name) == "no sink", 2, "DROP SERVER")
    db.enqueue("Order", "1", payload="5")
    assert db.sql("SELECT sink FROM outbox.events_pending") == [(None,)]
    assert receiver.payloads() == [1]


def test_a_changed_url_gets_what_the_old_one_refused(db, other, receiver, setting):
    """Including the request that hangs at the old URL at that time."""
    setting("outbox.poll_interval", "1h")
    receiver.mode = HANG
    db.webhook_sink("crm", receiver, SECRET, timeout="5min")
    for n in range(3):
        db.enqueue("Order", "1", payload=str(n))
    wait_until(lambda: receiver.open_requests, 5, "the request that hangs")
    db.sql(f"ALTER SERVER crm OPTIONS (SET url '{other.url}')")
    wait_until(lambda: other.payloads() == [0, 1, 2], 4, "all, in order")
    wait_until(lambda: db.pending() == 0, 5, "the rows to leave")
