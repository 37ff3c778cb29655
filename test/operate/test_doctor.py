"""What the doctor says."""

from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import SECRET


def test_doctor_of_a_healthy_database(db, receiver):
    db.webhook_sink("crm", receiver, SECRET)
    db.enqueue("Order", "1")
    wait_until(lambda: db.pending() == 0, 10, "delivery")
    assert {row[0]: row[1] for row in db.sql("SELECT * FROM outbox.doctor()")} == {
        "preload": "ok", "version": "ok", "librdkafka": "ok", "worker": "ok", "routes": "ok", "sink crm": "ok"}


def test_doctor_without_the_preload(rig, receiver):
    """It installs, enqueues, and says what is missing."""
    pg = rig.postgres(settings={"shared_preload_libraries": ""})
    try:
        db = Database(pg, "bare")
        db.create()
        db.webhook_sink("crm", receiver, SECRET)
        event = db.enqueue("Order", "1")
        assert db.sql("SELECT id::text, sink FROM outbox.events") == [(event, "crm")]
        status, detail, hint = db.doctor("preload")
        assert status == "error" and "shared_preload_libraries = outbox" in hint
        assert db.doctor("worker")[0] == "error"
        assert db.sink("state, pending") == ("not preloaded", 1)
        assert db.sql("SELECT * FROM outbox.workers") == []
        db.disconnect()
    finally:
        pg.stop()


def test_doctor_while_delivery_is_turned_off(db, receiver, setting):
    db.webhook_sink("crm", receiver, SECRET)
    setting("outbox.enabled", "off")
    wait_until(lambda: not db.sql("SELECT 1 FROM outbox.workers"), 5, "the worker to go")
    db.enqueue("Order", "1")
    status, detail, hint = db.doctor("worker")
    assert status == "warning" and "outbox.enabled" in detail and "outbox.enabled = on" in hint
    assert db.sink("state") == ("no worker",)
    setting("outbox.enabled", "on")
    wait_until(receiver.accepted, 10, "delivery")


def test_doctor_on_events_that_no_sink_takes(db, receiver):
    db.webhook_sink("crm", receiver, SECRET, events="order.*")
    db.enqueue("Customer", "1", "customer.created")
    status, detail, hint = db.doctor("routes")
    assert status == "warning" and "customer.created" in detail and "1 events" in detail
    db.sql("ALTER SERVER crm OPTIONS (SET events 'order.*, customer.*')")
    wait_until(receiver.accepted, 2, "the event to be routed at once")
    assert db.doctor("routes")[0] == "ok"


def test_doctor_on_a_sink_whose_circuit_is_open(db, receiver):
    receiver.stop()
    db.webhook_sink("crm", receiver, SECRET)
    db.enqueue("Order", "1")
    wait_until(lambda: db.sink("state") == ("circuit open",), 10, "an open circuit")
    status, detail, hint = db.doctor("sink crm")
    assert status == "error" and "circuit open" in detail and str(receiver.port) in detail
    receiver.start()
    wait_until(lambda: db.doctor("sink crm")[0] == "ok", 10, "the circuit to close")


def test_doctor_on_a_missing_secret(db, receiver):
    db.webhook_sink("crm", receiver)
    status, detail, hint = db.doctor("sink crm signature")
    assert status == "warning" and "CREATE USER MAPPING FOR PUBLIC SERVER crm" in hint
    db.sql(f"CREATE USER MAPPING FOR PUBLIC SERVER crm OPTIONS (secret '{SECRET}')")
    assert db.doctor("sink crm signature") is None


def test_doctor_on_a_url_that_is_missing(db, receiver):
    """It may stand in the user mapping, so the DDL cannot refuse it."""
    db.sql("CREATE SERVER crm FOREIGN DATA WRAPPER outbox_webhook OPTIONS (allow_http 'true', allow_networks '127.0.0.0/8')")
    db.enqueue("Order", "1")
    wait_until(lambda: db.sink("state") == ("misconfigured",), 10, "the worker to see")
    status, detail, hint = db.doctor("sink crm")
    assert status == "error" and "url" in detail
    db.sql(f"CREATE USER MAPPING FOR PUBLIC SERVER crm OPTIONS (url '{receiver.url}', secret '{SECRET}')")
    wait_until(receiver.accepted, 2, "delivery at once")
    assert db.doctor("sink crm")[0] == "ok"


def test_doctor_on_a_lost_sink(db, rig, receiver):
    receiver.stop()
    db.webhook_sink("crm", receiver, SECRET)
    event = db.enqueue("Order", "1")
    db.sql("DROP SERVER crm CASCADE")
    status, detail, hint = db.doctor("lost sink")
    assert status == "error" and '"crm"' in detail
    other = rig.receiver(secret=SECRET)
    try:
        db.webhook_sink("other", other, SECRET)
        db.sql(hint.partition(": ")[2])  # its example names "other", as we do
        wait_until(lambda: [d.id for d in other.accepted()] == [event], 2, "the event to go there at once")
        assert db.doctor("lost sink") is None
    finally:
        other.stop()
