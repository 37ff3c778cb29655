"""Secrets are shown nowhere."""

from outbox_rig import wait_until
from outbox_rig.receiver import SECRET, status


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
    wait_until(lambda: db.sink("failed") == (1,), 10, "a dead letter")
    assert token in receiver.deliveries[0].path and receiver.deliveries[0].headers["authorization"] == f"Bearer {bearer}"
    receiver.stop()
    db.enqueue("Order", "2")
    wait_until(lambda: db.sink("state") == ("circuit open",), 10, "an open circuit")
    shown = str([db.sql(f"SELECT * FROM {place}") for place in
                 ("outbox.sinks", "outbox.workers", "outbox.events", "outbox.doctor()", "outbox.sink_statistics()")])
    shown += str(db.sql("SELECT * FROM pg_stat_activity WHERE backend_type LIKE 'outbox%'"))
    with open(pg.log, errors="replace") as log:
        log.seek(start)
        shown += log.read()
    assert "circuit open" in shown
    for secret in (token, bearer, SECRET, SECRET.removeprefix("whsec_")):
        assert secret not in shown
