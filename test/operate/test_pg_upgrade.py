"""pg_upgrade with hard links of two databases with events of all states: from this version, and from each older one
that is installed."""

import pytest
from outbox_rig import installation, wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import OK, SECRET, status

pytestmark = pytest.mark.slow

SETTINGS = {"outbox.poll_interval": "1s"}
KEPT = ["SELECT position, id, sink, payload, partition_key, dedup_key, available_at, attempts, status, last_error, sent_at, xact, origin"
        " FROM outbox.events ORDER BY position", "SELECT * FROM outbox_internal.dedup ORDER BY 1", "SELECT * FROM outbox.stopped_sinks",
        "SELECT srvname, ARRAY(SELECT unnest(srvoptions) ORDER BY 1) FROM pg_foreign_server ORDER BY 1", "SELECT srvname, umoptions FROM pg_user_mappings ORDER BY 1",
        "SELECT last_value FROM outbox.events_position"]


def fill(db, receiver) -> None:
    """Kept, dead, pending and scheduled events; sinks that work, that are down and that are paused."""
    url = receiver.url.removesuffix("/hook")
    db.webhook_sink("audit", f"{url}/audit", SECRET, events="kept", retention="30d")
    db.webhook_sink("picky", f"{url}/picky", SECRET, events="bad", max_attempts="1")
    db.webhook_sink("crm", "http://127.0.0.1:1/", SECRET, events="order.*")
    db.webhook_sink("paused", f"{url}/paused", SECRET, events="none")
    db.sql("SELECT outbox.pause('paused')")
    db.enqueue("Order", "k", "kept")
    db.enqueue("Order", "k", "bad")
    for n in range(30):
        db.sql("SELECT outbox.enqueue('Order', %s::text, 'order.changed', to_jsonb(%s::int), dedup_key => %s)", n % 3, n, f"d{n}")
    db.sql("SELECT outbox.enqueue('Order', 'k', 'order.later', '0', available_at => now() + interval '1 day')")
    wait_until(lambda: db.sink("state") == ("circuit open",) and db.sql("SELECT status, count(*) FROM outbox.events GROUP BY 1 ORDER BY 1")
               == [("FAILED", 1), ("PENDING", 31), ("SENT", 1)], 20, "each to be where it belongs")


def check_order(db, receiver) -> None:
    """All pending events are delivered, each key in order, and new events after them."""
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events WHERE status = 'PENDING' AND available_at IS NULL") == 0, 30, "what waited")
    assert db.doctor("origin")[0] == "ok"
    late = db.enqueue("Order", "0", "order.changed", payload="33")
    wait_until(lambda: late in {d.id for d in receiver.accepted()}, 20, "a new event")
    for key in range(3):
        sent = [d.json()["data"] for d in receiver.accepted() if d.path == f"/{db.name}" and d.verified]
        assert [n for n in sent if n % 3 == key] == [*range(key, 30, 3)] + [33] * (key == 0)
    assert db.value("SELECT outbox.redrive(id) FROM outbox.events WHERE status = 'FAILED'")
    db.disconnect()


# test/rig/chroot installs an older one.
NO_OLDER = pytest.param(None, id="older", marks=pytest.mark.skip("no older PostgreSQL with headers is installed here: `make test-upgrade` has one"))


@pytest.mark.parametrize("older", [pytest.param(None, id="same"), *(installation.older() or [NO_OLDER])])
def test_pg_upgrade(rig, receiver, older):
    answers = {"/audit": OK, "/picky": status(422)}
    receiver.mode = lambda delivery: answers.get(delivery.path, status(503))
    old = rig.postgres(settings=SETTINGS | {"outbox.cluster_name": "production"}, checksums=True, bindir=installation.with_outbox(older) if older else None)
    new = rig.postgres(settings=SETTINGS, checksums=True)
    databases = [Database(old, "first"), Database(old, "second")]
    try:
        for db in databases:
            db.create()
            fill(db, receiver)
        kept = []
        old.set("outbox.enabled", "off")
        for db in databases:
            wait_until(lambda db=db: not db.sql("SELECT 1 FROM outbox.workers"), 20, "the workers to go")
            kept.append([db.sql(query) for query in KEPT])
            db.disconnect()
        old.stop()
        new.stop()
        new.upgrade_from(old)
        receiver.clear()
        answers.update({"/first": OK, "/second": OK})
        new.start()

        # It counts as another cluster, like a copy: no event is sent, and a message says so.
        databases = [Database(new, db.name) for db in databases]
        for db, before in zip(databases, kept):
            assert [db.sql(query) for query in KEPT] == before
            own = db.enqueue("Order", "own", "kept")
            wait_until(lambda own=own: own in {d.id for d in receiver.accepted()}, 20, "its own event")
            assert db.doctor("origin")[0] == "warning" and db.sink("state", "paused") == ("paused",)
        assert {d.path for d in receiver.deliveries} == {"/audit"}

        first, second = databases
        for db in databases:
            db.set_sink("crm", url=f"{receiver.url.removesuffix('/hook')}/{db.name}")
        # A user confirms that it is the real one: this database delivers, and no other.
        assert first.value("SELECT outbox.adopt()") == 31  # the pending events
        check_order(first, receiver)
        assert "/second" not in {d.path for d in receiver.deliveries}
        # With the name of the old cluster, no confirmation is needed.
        new.set("outbox.cluster_name", "production")
        check_order(second, receiver)
    finally:
        new.stop()
        old.stop()
