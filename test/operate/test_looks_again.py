"""A catalog that was wrong for a while leaves no database without a worker: the launcher looks again, and the doctor says what it knows."""

import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import SECRET

WRONG = {
    "no extension": ("UPDATE pg_extension SET extname = 'outbox_away' WHERE extname = 'outbox'", "UPDATE pg_extension SET extname = 'outbox' WHERE extname = 'outbox_away'"),
    "another version": ("UPDATE pg_extension SET extversion = '0.1.0' WHERE extname = 'outbox'", "UPDATE pg_extension SET extversion = '1.0.0' WHERE extname = 'outbox'"),
    "no schema": ("UPDATE pg_namespace SET nspname = 'outbox_away' WHERE nspname = 'outbox'", "UPDATE pg_namespace SET nspname = 'outbox' WHERE nspname = 'outbox_away'"),
}


def left_alone(db, receiver, wrong: str) -> None:
    """The catalog is right again, and the last worker saw it when it was wrong."""
    db.webhook_sink("crm", receiver, SECRET)
    db.enqueue("Order", "1")
    wait_until(lambda: receiver.accepted() and db.value("SELECT bool_and(query = 'waiting for events') FROM pg_stat_activity"
                                                        " WHERE backend_type = 'outbox worker' AND datname = current_database()"), 20, "delivery, and housekeeping")
    away, back = WRONG[wrong]
    db.sql(away)
    db.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'outbox worker' AND datname = current_database()")
    wait_until(lambda: db.value("SELECT extension FROM outbox_internal.worker_health()") in ("missing", "other version"), 20, "the next one to look")
    wait_until(lambda: db.value("SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'outbox worker' AND datname = current_database()"), 20, "it to leave")
    db.sql(back)
    db.disconnect()


@pytest.mark.parametrize("wrong", WRONG)
def test_a_reload_ends_it(db, receiver, wrong):
    left_alone(db, receiver, wrong)
    state, detail, hint = wait_until(lambda: (said := db.doctor("worker"))[0] == "error" and said, 20, lambda: str(db.doctor("worker")))
    assert "the last one found" in detail, detail
    assert hint.startswith("SELECT pg_reload_conf();")
    event = db.enqueue("Order", "2")
    db.paste(hint)
    wait_until(lambda: event in {delivery.id for delivery in receiver.accepted()}, 20, lambda: str(db.doctor("worker")))
    assert db.doctor("worker")[0] == "ok"


@pytest.mark.slow
def test_it_ends_by_itself(db, receiver):
    left_alone(db, receiver, "no schema")
    event = db.enqueue("Order", "2")
    wait_until(lambda: event in {delivery.id for delivery in receiver.accepted()}, 130, lambda: str(db.doctor("worker")))


def test_the_transaction_that_creates_the_extension(db):
    db.sql("DROP EXTENSION outbox CASCADE")
    with db.connect(autocommit=False) as session:
        session.execute("CREATE EXTENSION outbox")
        status, detail = session.execute("SELECT status, detail FROM outbox.doctor() WHERE \"check\" = 'worker'").fetchone()
        assert (status, detail) == ("ok", "A worker starts when this transaction has committed.")
