"""A copy of the whole cluster (pg_basebackup, a disk snapshot) beside production."""

import os
import signal

import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import SECRET


@pytest.fixture
def production(rig, receiver):
    """Events are pending, because the endpoint is down."""
    receiver.stop()
    pg = rig.postgres(settings={"outbox.poll_interval": "1s"})
    db = Database(pg, "production").create()
    db.webhook_sink("crm", receiver, SECRET)
    for n in range(20):
        db.enqueue("Order", str(n % 2), payload=str(n))
    wait_until(lambda: db.sink("state") == ("circuit open",), 20, "the sink that is down")
    yield db
    pg.stop()


def test_a_physical_clone(rig, production, receiver):
    """With an identity of its own, or with delivery turned off, the copy delivers none of production's events; after
    outbox.adopt() it delivers them, in order."""
    with rig.postgres(copy_of=production.pg, settings={"outbox.poll_interval": "1s", "outbox.cluster_name": "staging"}) as clone:
        copied = Database(clone, "production")
        production.pg.stop()
        receiver.start()
        own = copied.enqueue("Order", "own", payload='"own"')
        wait_until(lambda: own in {d.id for d in receiver.accepted()}, 20, "its own event")
        wait_until(lambda: copied.pending() == 20, 20, "its row to leave")
        assert {d.id for d in receiver.deliveries} == {own}
        verdict, _, hint = copied.doctor("origin")
        assert verdict == "warning" and "outbox.adopt()" in hint

        # With production's identity, the copy cannot be distinguished from production. So its configuration is changed
        # before it starts: here delivery is off.
        clone.set("outbox.enabled", "off")
        wait_until(lambda: not copied.sql("SELECT 1 FROM outbox.workers"), 20, "the worker to go")
        clone.set("outbox.cluster_name", "")
        assert copied.doctor("origin")[0] == "ok" and copied.doctor("worker")[0] == "warning"
        own = [copied.enqueue("Order", "own", payload='"as production"')]
        clone.set("outbox.cluster_name", "staging")
        clone.set("outbox.enabled", "on")
        wait_until(lambda: copied.sql("SELECT 1 FROM outbox.workers"), 20, "the worker")

        # The running worker follows a change of the identity.
        clone.set("outbox.cluster_name", "test")
        own.append(copied.enqueue("Order", "own", payload='"renamed"'))
        wait_until(lambda: own[1] in {d.id for d in receiver.accepted()}, 20, "its own event under another identity")
        assert len(receiver.deliveries) == 2
        wait_until(lambda: copied.value("SELECT outbox.adopt()") == 21, 20, "all but what is delivered to be adopted")
        wait_until(lambda: copied.pending() == 0, 30, "the adopted events")
        for key in range(2):
            assert [n for n in receiver.payloads() if isinstance(n, int) and n % 2 == key] == list(range(key, 20, 2))
        copied.disconnect()


def test_adopt_under_a_name_that_was_just_set(db, pg, receiver):
    """As docs/high-availability.md has it for pg_upgrade: the session's next statement may come before the server has told it of the reload."""
    db.webhook_sink("crm", receiver, SECRET)
    db.enqueue("Order", "1", available_at="2099-01-01")
    try:
        os.kill(pg.pid, signal.SIGSTOP)  # the postmaster passes no reload on
        try:
            db.sql("ALTER SYSTEM SET outbox.cluster_name = 'production'")
            db.sql("SELECT pg_reload_conf()")
            assert db.value("SELECT outbox.adopt()") == 1
        finally:
            os.kill(pg.pid, signal.SIGCONT)
        assert db.value("SHOW outbox.cluster_name") == "production"
        wait_until(lambda: db.doctor("origin")[0] == "ok", 10, lambda: str(db.doctor("origin")))
        db.sql("UPDATE outbox.events SET available_at = now()")
        wait_until(lambda: db.pending() == 0, 10, "the worker to deliver it under the new name")
    finally:
        pg.reset("outbox.cluster_name")
