"""The database's volume is full: producers get errors, and no committed event is lost."""

import os
import re
import time
from datetime import datetime

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import SECRET, slow
from outbox_rig.volume import NotPermitted, Volume

pytestmark = pytest.mark.slow

MAX_IN_FLIGHT = 50
SETTINGS = {"outbox.max_in_flight": str(MAX_IN_FLIGHT), "outbox.poll_interval": "1s",
            "min_wal_size": "2MB", "max_wal_size": "64MB", "wal_recycle": "off", "autovacuum": "off"}


@pytest.fixture
def volume():
    if os.getuid():
        pytest.skip("only root can mount a small volume")
    try:
        volume = Volume(64)
    except NotPermitted as why:
        pytest.skip(str(why))
    yield volume
    volume.close()


def set_up(db, receiver) -> None:
    """A sink that keeps delivered events, and one delivered event."""
    db.webhook_sink("crm", receiver, SECRET, retention="1d")
    db.sql("CREATE TABLE ledger (event uuid)")
    db.enqueue("Order", "first")
    wait_until(receiver.accepted, 30, "the first delivery")
    wait_until(lambda: db.pending() == 0, 20, "its row to move")
    assert db.value("SELECT count(*) FROM outbox.events WHERE status = 'SENT'") == 1


def write_until_it_fails(db) -> Exception:
    """Writes orders and their events until the volume is full."""
    with db.connect() as connection:
        for n in range(100_000):
            try:
                connection.execute("WITH o AS (SELECT outbox.enqueue('Order', %s::text, 'order.created',"
                                   " jsonb_build_object('text', repeat('x', 1500))) AS event)"
                                   " INSERT INTO ledger SELECT event FROM o", [str(n % 10)])
            except psycopg.Error as e:
                return e
    raise AssertionError("the volume never filled")


def check(db, receiver) -> None:
    """All committed events have arrived, and few of them twice."""
    wait_until(lambda: db.pending() == 0, 60, "all events to leave")
    committed = {str(event) for event, in db.sql("SELECT event FROM ledger")}
    accepted = [d.id for d in receiver.accepted()][1:]
    assert len(committed) > MAX_IN_FLIGHT, "the volume was too small"
    assert set(accepted) == committed
    assert len(accepted) - len(committed) <= MAX_IN_FLIGHT


def worker_errors(pg, since: int) -> list[datetime]:
    return [datetime.fromisoformat(match[1]) for line in pg.logged(since).splitlines() if (match := re.match(r"(\S+ \S+) UTC .* outbox worker .*ERROR: ", line))]


@pytest.mark.kills_server  # the log contains errors of the worker
def test_tables_are_full(pg, volume, receiver):
    """Delivered events cannot be moved to SENT: the worker retries, and logs it once."""
    with pg.connect() as admin:
        admin.execute(f"CREATE TABLESPACE small LOCATION '{volume.path}'")
        db = Database(pg, "small").create("small")
        try:
            set_up(db, receiver)
            since = pg.log.stat().st_size
            receiver.mode = slow(0.2)
            volume.fill(leaving=2_000_000)
            assert isinstance(write_until_it_fails(db), psycopg.errors.DiskFull)
            receiver.mode = slow(0)
            wait_until(lambda: worker_errors(pg, since), 60, "the worker to fail")
            time.sleep(5)  # it fails repeatedly
            assert len(worker_errors(pg, since)) <= 5, "the same words are told once"
            volume.free()
            check(db, receiver)
        finally:
            volume.free()
            db.drop()
            admin.execute("DROP TABLESPACE small")


def test_wal_is_full(rig, volume, receiver):
    """PostgreSQL stops (PANIC) and recovers when there is space again."""
    with rig.postgres(settings=SETTINGS, wal=volume.path / "wal") as pg:
        db = Database(pg, "orders").create()
        set_up(db, receiver)
        receiver.mode = slow(0.2)  # so that some events are in flight
        db.sql("SELECT pg_switch_wal()")
        db.sql("CREATE TABLE begins_a_segment ()")  # a full segment has space
        volume.fill()
        assert isinstance(write_until_it_fails(db), psycopg.OperationalError)
        wait_until(lambda: "PANIC" in pg.log.read_text(errors="replace"), 10, "the server to give up")
        receiver.mode = slow(0)
        db.disconnect()
        volume.free()
        wait_until(lambda: back(pg), 60, "the server to come back")
        check(db, receiver)
        db.disconnect()


def back(pg) -> bool:
    try:
        if not pg.running():  # it could not even recover without space
            pg.start()
        pg.connect().close()
        return True
    except (psycopg.OperationalError, RuntimeError):  # it is starting, or has just ended
        return False
