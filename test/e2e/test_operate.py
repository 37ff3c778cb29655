"""What an operator sees and does: doctor, views, retention, late commits, sinks that change."""

import time
from datetime import timedelta

import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import HANG, OK, SECRET, status

QUICK = {"retry": "exponential 50ms..200ms"}


def doctor(db, check: str) -> tuple | None:
    """(status, detail, hint) of a check, or None."""
    rows = db.sql('SELECT status, detail, hint FROM outbox.doctor() WHERE "check" = %s', check)
    return rows[0] if rows else None


def sink(db, columns: str, name: str = "crm") -> tuple:
    return db.sql(f"SELECT {columns} FROM outbox.sinks WHERE name = '{name}'")[0]


# ---- doctor ------------------------------------------------------------------------------------------------------


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
        status, detail, hint = doctor(db, "preload")
        assert status == "error" and "shared_preload_libraries = outbox" in hint
        assert doctor(db, "worker")[0] == "error"
        assert sink(db, "state, pending") == ("not preloaded", 1)
        assert db.sql("SELECT * FROM outbox.workers") == []
        db.disconnect()
    finally:
        pg.stop()


def test_doctor_while_delivery_is_turned_off(db, receiver, setting):
    db.webhook_sink("crm", receiver, SECRET)
    setting("outbox.enabled", "off")
    wait_until(lambda: not db.sql("SELECT 1 FROM outbox.workers"), 5, "the worker to go")
    db.enqueue("Order", "1")
    status, detail, hint = doctor(db, "worker")
    assert status == "warning" and "outbox.enabled" in detail and "outbox.enabled = on" in hint
    assert sink(db, "state") == ("no worker",)
    setting("outbox.enabled", "on")
    wait_until(receiver.accepted, 10, "delivery")


def test_doctor_on_events_that_no_sink_takes(db, receiver):
    db.webhook_sink("crm", receiver, SECRET, events="order.*")
    db.enqueue("Customer", "1", "customer.created")
    status, detail, hint = doctor(db, "routes")
    assert status == "warning" and "customer.created" in detail and "1 events" in detail
    db.sql("ALTER SERVER crm OPTIONS (SET events 'order.*, customer.*')")
    wait_until(receiver.accepted, 2, "the event to be routed at once")
    assert doctor(db, "routes")[0] == "ok"


def test_doctor_on_a_sink_whose_circuit_is_open(db, receiver):
    receiver.stop()
    db.webhook_sink("crm", receiver, SECRET)
    db.enqueue("Order", "1")
    wait_until(lambda: sink(db, "state") == ("circuit open",), 10, "an open circuit")
    status, detail, hint = doctor(db, "sink crm")
    assert status == "error" and "circuit open" in detail and str(receiver.port) in detail
    receiver.start()
    wait_until(lambda: doctor(db, "sink crm")[0] == "ok", 10, "the circuit to close")


def test_doctor_on_a_missing_secret(db, receiver):
    db.webhook_sink("crm", receiver)
    status, detail, hint = doctor(db, "sink crm signature")
    assert status == "warning" and "CREATE USER MAPPING FOR PUBLIC SERVER crm" in hint
    db.sql(f"CREATE USER MAPPING FOR PUBLIC SERVER crm OPTIONS (secret '{SECRET}')")
    assert doctor(db, "sink crm signature") is None


def test_doctor_on_a_url_that_is_missing(db, receiver):
    """It may stand in the user mapping, so the DDL cannot refuse it."""
    db.sql("CREATE SERVER crm FOREIGN DATA WRAPPER outbox_webhook OPTIONS (allow_http 'true', allow_networks '127.0.0.0/8')")
    db.enqueue("Order", "1")
    wait_until(lambda: sink(db, "state") == ("misconfigured",), 10, "the worker to see")
    status, detail, hint = doctor(db, "sink crm")
    assert status == "error" and "url" in detail
    db.sql(f"CREATE USER MAPPING FOR PUBLIC SERVER crm OPTIONS (url '{receiver.url}', secret '{SECRET}')")
    wait_until(receiver.accepted, 2, "delivery at once")
    assert doctor(db, "sink crm")[0] == "ok"


def test_doctor_on_a_lost_sink(db, rig, receiver):
    receiver.stop()
    db.webhook_sink("crm", receiver, SECRET)
    event = db.enqueue("Order", "1")
    db.sql("DROP SERVER crm CASCADE")
    status, detail, hint = doctor(db, "lost sink")
    assert status == "error" and '"crm"' in detail
    other = rig.receiver(secret=SECRET)
    try:
        db.webhook_sink("other", other, SECRET)
        db.sql(hint.partition(": ")[2])  # its example names "other", as we do
        wait_until(lambda: [d.id for d in other.accepted()] == [event], 2, "the event to go there at once")
        assert doctor(db, "lost sink") is None
    finally:
        other.stop()


# ---- views -------------------------------------------------------------------------------------------------------


def test_the_columns_of_sinks(db, receiver):
    db.webhook_sink("crm", receiver, SECRET, retry="1h", max_attempts="2")
    answers = {"bad": status(500, body=b"no"), "hang": HANG}
    receiver.mode = lambda d: answers.get(d.json()["data"], OK)
    for key in ("good", "bad", "bad", "hang"):
        db.enqueue("Order", key, payload=f'"{key}"')
    db.sql("SELECT outbox.enqueue('Order', 'later', 'e', '1', available_at => now() + interval '1 hour')")
    wait_until(lambda: sink(db, "delivered, in_flight, held") == (1, 1, 1), 10, lambda: sink(db, "*"))
    row = dict(zip(("kind", "target", "state", "pending", "scheduled", "estimated", "failed", "failed_total", "retried", "error"),
                   sink(db, "kind, target, state, pending, scheduled, estimated, failed, failed_total, retried, last_error")))
    assert row == {"kind": "webhook", "target": receiver.url, "state": "delivering", "pending": 4, "scheduled": 1,
                   "estimated": False, "failed": 0, "failed_total": 0, "retried": 1, "error": "HTTP 500: no"}
    assert timedelta(0) < sink(db, "oldest_pending_age")[0] < timedelta(seconds=30)
    assert 0 < sink(db, "latency_p50")[0] <= sink(db, "latency_p99")[0] < 30000

    db.sql("UPDATE outbox.events SET available_at = now() WHERE attempts > 0")
    wait_until(lambda: sink(db, "failed, failed_total, retried, held") == (1, 1, 2, 0), 10, lambda: sink(db, "*"))
    wait_until(lambda: sink(db, "pending") == (3,), 10, "a dead letter not to be pending")
    [worker] = db.sql("SELECT w.lanes, w.workers, w.worker, w.state, w.memory > 0, w.started_at <= w.last_loop_at, a.backend_type"
                      " FROM outbox.workers w JOIN pg_stat_activity a USING (pid) WHERE w.database = %s", db.name)
    assert worker == (256, 1, 0, "delivering", True, True, "outbox worker")


def test_the_oldest_age_does_not_depend_on_the_worker(db, receiver, setting):
    """A worker that is not there must show."""
    db.webhook_sink("crm", receiver, SECRET)
    setting("outbox.enabled", "off")
    wait_until(lambda: not db.sql("SELECT 1 FROM outbox.workers"), 5, "the worker to go")
    db.enqueue("Order", "1")
    first = sink(db, "oldest_pending_age")[0]
    wait_until(lambda: sink(db, "oldest_pending_age")[0] > first + timedelta(seconds=0.5), 5, "the age to rise")


# ---- retention ---------------------------------------------------------------------------------------------------


def test_without_retention_delivered_rows_are_gone(db, receiver):
    db.webhook_sink("crm", receiver, SECRET)
    db.enqueue("Order", "1")
    wait_until(lambda: db.pending() == 0, 10, "delivery")
    assert db.value("SELECT count(*) FROM outbox.events") == 0


def test_delivered_rows_are_kept_for_the_retention(db, receiver, setting):
    setting("outbox.retention", "1d")
    db.webhook_sink("crm", receiver, SECRET)
    event = db.enqueue("Order", "1")
    wait_until(lambda: db.pending() == 0, 10, "delivery")
    [(kept, sent, attempts, error)] = db.sql("SELECT id::text, sent_at BETWEEN created_at AND clock_timestamp(), attempts, last_error"
                                             " FROM outbox.events WHERE status = 'SENT'")
    assert (kept, sent, attempts, error) == (event, True, 0, None)


def test_a_sink_has_a_retention_of_its_own(db, rig, receiver):
    db.webhook_sink("keeps", receiver, SECRET, retention="1d", events="kept")
    db.webhook_sink("drops", receiver, SECRET, events="dropped")
    for event_type in ("kept", "dropped"):
        db.enqueue("Order", "1", event_type)
    wait_until(lambda: db.pending() == 0, 10, "delivery")
    assert db.sql("SELECT event_type, status FROM outbox.events") == [("kept", "SENT")]


def test_maintain_drops_old_days(db, setting):
    """Days that the retention has passed go whole; those within it stay."""
    setting("outbox.retention", "7d")

    def days() -> list[str]:
        return [row[0] for row in db.sql("SELECT right(inhrelid::regclass::text, 8) FROM pg_inherits"
                                         " WHERE inhparent = 'outbox.events_sent'::regclass ORDER BY 1")]

    wait_until(lambda: len(days()) >= 5, 10, "the days that the worker makes")
    made = days()
    for ago in (5, 20):
        db.sql(f"""DO $$ DECLARE day date := (now() AT TIME ZONE 'UTC')::date - {ago}; BEGIN
                   EXECUTE format('CREATE TABLE outbox.events_sent_%s PARTITION OF outbox.events_sent (PRIMARY KEY (position))
                     FOR VALUES FROM (%L) TO (%L)', to_char(day, 'YYYYMMDD'), day || ' 00:00Z', day + 1 || ' 00:00Z'); END $$""")
        db.sql("INSERT INTO outbox.events (aggregate_type, event_type, status, sent_at)"
               " VALUES ('Order', 'e', 'SENT', date_trunc('day', now(), 'UTC') - %s * interval '1 day')", ago)
    assert db.value("SELECT count(*) FROM outbox.events") == 2
    assert db.value("SELECT outbox.maintain()") == 1
    assert len(days()) == len(made) + 1
    assert db.value("SELECT count(*) FROM outbox.events") == 1
    setting("outbox.retention", "0")
    assert db.value("SELECT outbox.maintain()") == 1
    assert days() == made


# ---- secrets -----------------------------------------------------------------------------------------------------


def test_no_secret_is_shown(db, pg, receiver):
    """Not in a view, not in the log, not in an error: neither the signing secret, nor the token of a URL."""
    token, bearer = "tok3n-in-the-url", "b3arer-of-the-mapping"
    receiver.mode = status(500, body=b"no")
    db.sql("CREATE SERVER crm FOREIGN DATA WRAPPER outbox_webhook"
           " OPTIONS (allow_http 'true', allow_networks '127.0.0.0/8', retry 'exponential 50ms..100ms', max_attempts '2')")
    start = pg.log.stat().st_size
    db.sql("SET log_statement = 'none'")
    db.sql(f"CREATE USER MAPPING FOR PUBLIC SERVER crm OPTIONS (url '{receiver.url}?token={token}', secret '{SECRET}',"
           f" bearer_token '{bearer}')")
    db.enqueue("Order", "1")
    wait_until(lambda: sink(db, "failed") == (1,), 10, "a dead letter")
    assert token in receiver.deliveries[0].path and receiver.deliveries[0].headers["authorization"] == f"Bearer {bearer}"
    receiver.stop()
    db.enqueue("Order", "2")
    wait_until(lambda: sink(db, "state") == ("circuit open",), 10, "an open circuit")
    shown = str([db.sql(f"SELECT * FROM {place}") for place in
                 ("outbox.sinks", "outbox.workers", "outbox.events", "outbox.doctor()", "outbox.sink_statistics()")])
    shown += str(db.sql("SELECT * FROM pg_stat_activity WHERE backend_type LIKE 'outbox%'"))
    with open(pg.log, errors="replace") as log:
        log.seek(start)
        shown += log.read()
    assert "circuit open" in shown
    for secret in (token, bearer, SECRET, SECRET.removeprefix("whsec_")):
        assert secret not in shown


# ---- sinks that change -------------------------------------------------------------------------------------------


def got(receiver) -> list:
    return [delivery.json()["data"] for delivery in receiver.accepted()]


def test_create_alter_and_drop_server_take_effect_at_once(db, rig, receiver, setting):
    setting("outbox.poll_interval", "1h")
    db.enqueue("Order", "1", payload="1")
    wait_until(lambda: db.sql("SELECT 1 FROM outbox.workers"), 5, "the worker")
    db.webhook_sink("crm", receiver, SECRET)
    wait_until(lambda: got(receiver) == [1], 2, "CREATE SERVER, and what waited for it")

    other = rig.receiver(secret=SECRET)
    try:
        db.sql(f"ALTER SERVER crm OPTIONS (SET url '{other.url}')")
        db.enqueue("Order", "1", payload="2")
        wait_until(lambda: got(other) == [2], 2, "ALTER SERVER of the url")
        db.sql("ALTER SERVER crm OPTIONS (ADD headers '{\"X-Tenant\": \"42\"}')")
        db.enqueue("Order", "1", payload="3")
        wait_until(lambda: got(other) == [2, 3], 2, "ALTER SERVER of another option")
        assert other.deliveries[-1].headers["x-tenant"] == "42"
        db.sql("ALTER SERVER crm RENAME TO sales")
        db.enqueue("Order", "1", payload="4")
        wait_until(lambda: got(other) == [2, 3, 4], 2, "the new name")
        wait_until(lambda: sink(db, "pending", "sales") == (0,), 10, "the rows to leave")
        db.sql("DROP SERVER sales CASCADE")
        wait_until(lambda: db.value("SELECT state FROM outbox.workers WHERE database = %s", db.name) == "no sink", 2, "DROP SERVER")
        db.enqueue("Order", "1", payload="5")
        assert db.sql("SELECT sink FROM outbox.events_pending") == [(None,)]
        assert got(receiver) == [1]
    finally:
        other.stop()


def test_a_changed_url_gets_what_the_old_one_refused(db, rig, receiver, setting):
    """Also what hangs at the old one right now."""
    setting("outbox.poll_interval", "1h")
    receiver.mode = HANG
    db.webhook_sink("crm", receiver, SECRET, timeout="5min")
    for n in range(3):
        db.enqueue("Order", "1", payload=str(n))
    wait_until(lambda: receiver.open_requests, 5, "the request that hangs")
    other = rig.receiver(secret=SECRET)
    try:
        db.sql(f"ALTER SERVER crm OPTIONS (SET url '{other.url}')")
        wait_until(lambda: got(other) == [0, 1, 2], 4, "all, in order")
        wait_until(lambda: db.pending() == 0, 5, "the rows to leave")
    finally:
        other.stop()
