"""`make uninstall`, DROP EXTENSION and a start without the preload remove everything that `make install` and CREATE
EXTENSION added."""

import os
import subprocess

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.paths import ROOT
from outbox_rig.receiver import SECRET, status

# The keys of catalogs without oid: changes that vacuum makes to a row do not count.
KEYS = {"pg_attribute": "attrelid, attnum", "pg_index": "indexrelid", "pg_sequence": "seqrelid"}
CATALOGS = """SELECT c.relname, EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attname = 'oid')
              FROM pg_class AS c WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind = 'r' AND c.relname !~ '^pg_statistic'"""


def catalogs(db: Database) -> set[tuple[str, str]]:
    """Every row of every catalog, by its key."""
    found = set()
    for catalog, has_oid in db.sql(CATALOGS):
        key = "oid" if has_oid else KEYS.get(catalog, "c.*")
        found |= {(catalog, row[0]) for row in db.sql(f"SELECT ROW({key})::text FROM pg_catalog.{catalog} AS c")}
    return found


@pytest.fixture
def server(rig):
    with rig.postgres(settings={"outbox.poll_interval": "1s", "outbox.retention": "1d"}) as pg:
        yield pg


def test_nothing_is_left_in_a_database(server, receiver):
    with server.connect() as admin:
        admin.execute("CREATE ROLE app")
        admin.execute("CREATE DATABASE used")
    db = Database(server, "used")
    before = catalogs(db)

    db.sql("CREATE EXTENSION outbox")
    db.webhook_sink("crm", receiver, SECRET, retry="1ms*2", max_attempts="2")
    db.webhook_sink("paused", receiver, SECRET, events="never")
    db.sql("GRANT USAGE ON SCHEMA outbox TO app; GRANT INSERT ON outbox.events TO app; GRANT USAGE ON FOREIGN SERVER crm TO app")
    db.sql("SELECT outbox.pause('paused')")
    db.sql("ALTER SERVER paused RENAME TO renamed")
    receiver.mode = lambda delivery: status(400) if delivery.json()["data"] == "dead" else status(204)
    for name in ("sent", "dead"):
        db.enqueue("Order", name, payload=f'"{name}"', dedup_key=name)
    db.sql("SELECT outbox.enqueue('Order', 'later', 'e', '{}', available_at => now() + interval '1 day')")
    wait_until(lambda: sorted(db.sql("SELECT status FROM outbox.events")) == [("FAILED",), ("PENDING",), ("SENT",)], 30,
               lambda: db.sql("SELECT status, last_error FROM outbox.events"))
    assert len(catalogs(db) - before) > 500

    db.sql("DROP EXTENSION outbox CASCADE")
    assert catalogs(db) ^ before == set()

    # It drops its schema, unless a user keeps objects there.
    db.sql("CREATE EXTENSION outbox")
    db.sql("GRANT USAGE ON SCHEMA outbox TO app; CREATE VIEW outbox.mine AS SELECT 1")
    db.sql("SELECT outbox.run_maintenance()")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist) as refused:
        db.sql("DROP EXTENSION outbox")
    assert refused.value.diag.message_detail == "view outbox.mine depends on schema outbox"
    db.sql("DROP VIEW outbox.mine; DROP EXTENSION outbox")
    assert catalogs(db) ^ before == set()
    wait_until(lambda: db.sql("SELECT FROM pg_stat_activity WHERE backend_type = 'outbox worker'") == [], 20, "its worker to leave")

    db.disconnect()
    with open(server.data / "postgresql.conf", "a") as conf:
        conf.write("shared_preload_libraries = ''\n")
    server.restart()
    assert db.sql("SELECT FROM pg_stat_activity WHERE backend_type ~ 'outbox'") == []
    assert db.sql("SELECT FROM pg_shmem_allocations WHERE name ~ 'outbox'") == []
    db.disconnect()
    assert [path for path in server.data.rglob("*outbox*")] == []


def test_a_drop_counts_the_events_that_are_lost(db, receiver):
    """Pending events and dead letters; a rollback keeps them."""
    def drop(ending: str, role: str | None = None) -> list[tuple]:
        said = []
        with db.connect(autocommit=False, **({"user": role} if role else {})) as session:
            session.add_notice_handler(lambda notice: said.append((notice.severity, notice.message_primary, notice.message_detail)))
            session.execute("DROP EXTENSION outbox CASCADE")
            session.execute(ending)
        return [row for row in said if row[0] == "WARNING"]

    assert drop("ROLLBACK") == []
    receiver.mode = status(400)
    db.webhook_sink("crm", receiver, SECRET, max_attempts="1", events="order.*")
    dead = [db.enqueue("Order", str(n)) for n in range(2)]
    wait_until(lambda: db.sink("dead") == (len(dead),), 20, lambda: str(db.sink("*")))
    for _ in range(3):
        db.enqueue("Invoice", "1", "invoice.sent")
    warning = ("WARNING", "DROP EXTENSION deletes events that were not delivered", "Pending events: 3; dead letters: 2.")
    assert drop("ROLLBACK") == [warning]
    assert db.value("SELECT count(*) FROM outbox.events") == 5
    with db.role("app"), pytest.raises(psycopg.errors.InsufficientPrivilege, match="must be owner of extension outbox"):
        drop("ROLLBACK", "app")
    assert drop("COMMIT") == [warning]
    db.sql("CREATE EXTENSION outbox")
    assert drop("COMMIT") == []


def test_make_uninstall_takes_all_that_make_install_brought(tmp_path):
    def files() -> list[str]:
        return [path.name for path in tmp_path.rglob("*") if path.is_file()]

    def make(target: str) -> None:
        subprocess.run(["make", "-s", target, f"DESTDIR={tmp_path}"], cwd=ROOT, check=True, env=os.environ | {"MAKEFLAGS": ""}, capture_output=True)

    make("install")
    assert {"outbox.so", "outbox.control"} < set(files())
    make("uninstall")
    assert files() == []
