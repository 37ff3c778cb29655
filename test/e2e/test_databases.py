"""Each database with the extension has its own workers, which follow what is done to the database."""

import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from outbox_rig import patient, wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import SECRET, status


def worker_pids(pg, name: str) -> list[int]:
    with pg.connect() as admin:
        return [row[0] for row in admin.execute(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'outbox worker' AND datname = %s", [name])]


@pytest.fixture
def admin(pg):
    with pg.connect() as connection:
        connection.execute(f"SET statement_timeout = '{patient(20):g}s'")
        yield connection


@pytest.fixture
def drop(pg, admin):
    """drop(database): drops the database at the end, unless the test has already done so."""
    databases = []
    yield databases.append
    for name in databases:
        admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.mark.parametrize("closed, opened", [("IS_TEMPLATE true", "IS_TEMPLATE false"), ("ALLOW_CONNECTIONS false", "ALLOW_CONNECTIONS true")])
def test_a_busy_worker_leaves_a_database_that_is_closed(pg, db, admin, receiver, closed, opened):
    """Nobody may connect to a template, and ALLOW_CONNECTIONS false also applies to the worker."""
    db.webhook_sink("crm", receiver, SECRET, retry="100ms..200ms", max_attempts="10000")
    receiver.mode = status(500)
    db.enqueue("Order", "k", payload="1")
    wait_until(lambda: len(receiver.deliveries) > 2, 20, "attempts")
    db.disconnect()
    admin.execute(f"ALTER DATABASE {db.name} {closed}")
    try:
        wait_until(lambda: worker_pids(pg, db.name) == [], 10, "the worker to leave")
        receiver.mode = status(200)
    finally:
        admin.execute(f"ALTER DATABASE {db.name} {opened}")
    wait_until(lambda: receiver.payloads() == [1], 10, "the next worker, and the event")


def test_two_databases(db, pg, receiver, drop):
    """Two databases at once: each has its own sinks, events and worker."""
    drop("second")
    second = Database(pg, "second").create()
    for database in (db, second):
        database.webhook_sink("crm", receiver, SECRET)
        database.enqueue("Order", "1", payload=f'"{database.name}"')
    wait_until(lambda: sorted(receiver.payloads()) == sorted([db.name, "second"]), 10, "both")
    found = dict(db.sql("SELECT database, pid FROM outbox.workers"))
    assert set(found) >= {db.name, "second"} and len(set(found.values())) == len(found)
    second.disconnect()


def live(db, receiver, life: int) -> None:
    """A sink is made and delivers an event."""
    db.webhook_sink("crm", receiver, SECRET)
    db.enqueue("Order", "1", payload=str(life))
    wait_until(lambda: receiver.payloads() == list(range(1, life + 1)), 10, f"life {life}")


def test_drop_extension_ends_the_worker_and_create_starts_one(db, pg, receiver):
    live(db, receiver, 1)
    [pid] = worker_pids(pg, db.name)
    db.sql("DROP EXTENSION outbox CASCADE")
    wait_until(lambda: worker_pids(pg, db.name) == [], 5, "the worker to leave")
    db.sql("CREATE EXTENSION outbox")
    wait_until(lambda: worker_pids(pg, db.name), 5, "the next worker")
    assert worker_pids(pg, db.name) != [pid]
    live(db, receiver, 2)


def test_drop_and_create_extension_in_one_transaction(db, receiver):
    live(db, receiver, 1)
    with db.connect(autocommit=False) as connection:
        connection.execute("DROP EXTENSION outbox CASCADE")
        connection.execute("CREATE EXTENSION outbox")
        connection.commit()
    live(db, receiver, 2)


def test_drop_and_create_extension_while_the_catalog_is_locked(db, pg, receiver):
    """The worker's look for the extension fails, so it must look again: it must not go on with one that was dropped."""
    live(db, receiver, 1)
    [pid] = worker_pids(pg, db.name)
    log_began = pg.log.stat().st_size
    with db.connect(autocommit=False) as maker, db.connect(autocommit=False) as locker, ThreadPoolExecutor() as threads:
        maker.execute("DROP EXTENSION outbox CASCADE")
        maker.execute("CREATE EXTENSION outbox")
        locked = threads.submit(locker.execute, "LOCK TABLE pg_catalog.pg_extension")
        wait_until(lambda: db.value("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'pg_extension'::regclass)"), 20, "the lock to be waited for")
        maker.commit()
        locked.result(patient(20))
        wait_until(lambda: "outbox waits for a lock" in pg.logged(log_began), 20, "the worker to give up waiting")
        locker.rollback()
    wait_until(lambda: worker_pids(pg, db.name) not in ([], [pid]), 20, "a new worker")
    live(db, receiver, 2)


def test_create_extension_rolled_back(db, pg, receiver):
    db.sql("DROP EXTENSION outbox")
    wait_until(lambda: worker_pids(pg, db.name) == [], 5, "the worker to leave")
    with db.connect(autocommit=False) as connection:
        connection.execute("CREATE EXTENSION outbox")
        connection.rollback()
    db.sql("CREATE EXTENSION outbox")
    live(db, receiver, 1)


def test_a_command_that_fails_gets_the_worker_back(db, pg, admin, receiver):
    db.webhook_sink("crm", receiver, SECRET)
    wait_until(lambda: worker_pids(pg, db.name), 5, "the worker")
    db.disconnect()
    with pytest.raises(psycopg.errors.DuplicateDatabase):
        admin.execute(f"ALTER DATABASE {db.name} RENAME TO postgres")
    db.enqueue("Order", "1", payload="1")
    wait_until(lambda: receiver.payloads() == [1], 5, "delivery")


def test_a_copy_by_template_waits_for_adopt(db, pg, admin, receiver, drop):
    copy = Database(pg, f"{db.name}_copy")
    drop(copy.name)
    receiver.stop()  # so that rows are pending when the copy is made
    db.webhook_sink("crm", receiver, SECRET)
    events = [db.enqueue("Order", "1", payload=str(n)) for n in range(3)]
    wait_until(lambda: db.value("SELECT state FROM outbox.sinks") == "circuit open", 10, "the worker to try")
    db.disconnect()
    admin.execute(f"CREATE DATABASE {copy.name} TEMPLATE {db.name}")  # it fails after 5 s if the worker stays
    wait_until(lambda: worker_pids(pg, copy.name), 5, "the copy's worker")
    receiver.start()
    wait_until(lambda: db.pending() == 0, 20, "the source to deliver")
    own = copy.enqueue("Order", "1", payload="3")
    wait_until(lambda: own in {d.id for d in receiver.accepted()}, 10, "the copy's own event")
    assert sorted(d.id for d in receiver.accepted()) == sorted([*events, own])
    wait_until(lambda: copy.pending() == 3, 5, "its own event to be recorded, and no other")
    assert copy.sql("""SELECT status FROM outbox.doctor() WHERE "check" = 'origin'""") == [("warning",)]
    assert copy.value("SELECT outbox.adopt()") == 3
    wait_until(lambda: copy.pending() == 0, 5, "the adopted events to go")
    assert [d.id for d in receiver.accepted()][-3:] == events
    copy.disconnect()


def test_no_worker_slot_is_said_once_and_by_doctor(rig, receiver):
    """Both slots are in use, by the launcher and by PostgreSQL's own process."""
    said = "no free background worker slot for outbox"
    with rig.postgres(settings={"max_worker_processes": "2", "outbox.poll_interval": "1s"}) as pg:
        database = Database(pg, "first").create()
        database.webhook_sink("crm", receiver, SECRET)
        database.enqueue("Order", "1")
        status, detail, hint = wait_until(lambda: (row := database.doctor("worker"))[0] == "error" and row, 30, lambda: str(database.doctor("worker")))
        assert "for any database: 0 of 1 worker runs" in detail and "max_worker_processes = 10" in hint
        wait_until(lambda: said in pg.log.read_text(), 30, "the log's word")
        for _ in range(5):  # each of these makes the launcher try again
            pg.reload()
            time.sleep(0.1)
        assert pg.log.read_text().count(said) == 1 and receiver.accepted() == []
        database.paste(hint)
        database.disconnect()
        pg.restart()
        wait_until(receiver.accepted, 20, "delivery")
        assert database.doctor("worker")[0] == "ok"
        database.disconnect()
