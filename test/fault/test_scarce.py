"""Memory, connections or timeouts that a user has reduced: the server stays up, and the worker continues."""

import os
import re
import tempfile
from pathlib import Path

import psycopg
import pytest

from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.preload import compiled
from outbox_rig.receiver import SECRET

WORKER = "SELECT pid FROM outbox.workers WHERE database = current_database()"


def limit_memory(pg, pid: int, more: int | None) -> None:
    """Allows the process `more` bytes in addition to its present memory; None: no limit."""
    pages = int(open(f"/proc/{pid}/statm").read().split()[0])
    limit = "unlimited" if more is None else str(pages * os.sysconf("SC_PAGESIZE") + more)
    pg._run("prlimit", f"--pid={pid}", f"--as={limit}:")  # as the worker's user, who is allowed to


@pytest.mark.parametrize("more", [24 << 20, 2 << 20, 0], ids=["24MB", "2MB", "nothing"])
def test_a_worker_without_memory_ends_and_the_next_one_goes_on(db, pg, receiver, more):
    """It ends with an error, not by a signal: the server stays up. The next worker delivers everything, in order."""
    db.webhook_sink("crm", receiver, SECRET)
    db.enqueue("Order", "warm", payload='"warm"')
    wait_until(lambda: db.pending() == 0, 20, "a first event")
    receiver.clear()
    log, started, worker = pg.log.stat().st_size, db.value("SELECT pg_postmaster_start_time()"), db.value(WORKER)
    limit_memory(pg, worker, more)
    for n in range(3):
        db.sql("SELECT outbox.enqueue('Order', 'large', 'e', to_jsonb(%s || repeat('x', 15000000)))", str(n))
    db.enqueue("Order", "large", payload='"3"')
    for n in range(20):
        db.enqueue("Order", f"small{n}", payload='"small"')
    wait_until(lambda: db.pending() == 0, 60, lambda: f"all events to go: {db.sql('SELECT * FROM outbox.sinks')}")
    told = pg.log.read_bytes()[log:].decode()
    assert re.search(r"FATAL: +out of memory", told) and "terminated by signal" not in told
    assert db.value(WORKER) != worker and db.value("SELECT pg_postmaster_start_time()") == started
    data = [delivery.json()["data"] for delivery in receiver.accepted()]
    firsts = list(dict.fromkeys(text[0] for text in data if text != "small"))
    assert firsts == ["0", "1", "2", "3"] and data.count("small") >= 20


@pytest.mark.parametrize("where", ["main", "thread"])
def test_an_allocation_of_the_delivery_library_fails(rig, receiver, where):
    """On the main thread or on another one: the worker ends with an error, and the next one delivers everything, in order."""
    folder = Path(tempfile.mkdtemp(prefix="outbox-"))
    folder.chmod(0o777)  # the server removes the file
    pg = rig.postgres(env={"LD_PRELOAD": str(compiled(Path(__file__).with_name("failing_allocation.c"))),
                           "FAIL_MAIN": str(folder / "main"), "FAIL_THREAD": str(folder / "thread")})
    db = Database(pg, "scarce").create()
    db.webhook_sink("crm", receiver, SECRET)
    db.send("a", 0)
    wait_until(lambda: receiver.numbers("a") == [0], 20, "a first event")
    worker = db.value(WORKER)
    (folder / where).touch()
    for n in range(1, 30):
        db.send("a", n)
    wait_until(lambda: db.pending() == 0, 60, lambda: f"all events to go: {pg.logged(0)[-2000:]}")
    assert list(folder.iterdir()) == [], "the allocation failed"
    folder.rmdir()
    assert re.search(r"FATAL: +out of memory", pg.logged(0)) and "terminated by signal" not in pg.logged(0)
    assert list(dict.fromkeys(receiver.numbers("a"))) == list(range(30)) and db.value(WORKER) != worker
    db.disconnect()
    pg.stop()


def test_a_full_table_of_locks_ends_no_worker(rig, receiver):
    """PostgreSQL says "out of shared memory" with the same SQLSTATE: the worker tries again, until there is room."""
    pg = rig.postgres(settings={"max_connections": "8", "max_locks_per_transaction": "10", "outbox.poll_interval": "1s"})
    db = Database(pg, "locked").create()
    db.webhook_sink("crm", receiver, SECRET)
    db.send("a", 0)
    wait_until(lambda: receiver.numbers("a") == [0], 20, "a first event")
    worker, log = db.value(WORKER), pg.log.stat().st_size
    with pg.connect() as other:
        with pytest.raises(psycopg.errors.OutOfMemory):
            other.execute("SELECT pg_advisory_lock(n) FROM generate_series(1, 1000000) AS n")
        wait_until(lambda: re.search("outbox worker.*out of shared memory", pg.logged(log)), 30, lambda: f"the worker to find no room: {pg.logged(log)}")
        other.execute("SELECT pg_advisory_unlock_all()")
    db.send("a", 1)
    wait_until(lambda: receiver.numbers("a") == [0, 1], 30, "the event")
    assert db.value(WORKER) == worker
    db.disconnect()
    pg.stop()


HOSTILE = {"statement_timeout": "1ms", "lock_timeout": "1ms", "idle_session_timeout": "1ms", "idle_in_transaction_session_timeout": "1ms",
           "default_transaction_read_only": "on", "default_transaction_isolation": "serializable", "enable_indexscan": "off",
           "session_replication_role": "replica", "search_path": "nowhere", "work_mem": "64kB", "synchronous_commit": "on",
           "row_security": "off", "array_nulls": "off", "transform_null_equals": "on", "client_encoding": "LATIN1",
           "TimeZone": "Asia/Kathmandu", "DateStyle": "SQL, DMY", "IntervalStyle": "sql_standard", "default_transaction_deferrable": "on",
           "max_parallel_workers_per_gather": "8", "min_parallel_table_scan_size": "0", "role": "pg_monitor"}


def test_settings_for_everybody_are_not_the_workers(db, receiver):
    """ALTER DATABASE ... SET by a user who meant applications."""
    log = db.pg.log.stat().st_size
    hostile = HOSTILE | {name: "1ms" for (name,) in db.sql("SELECT name FROM pg_settings WHERE name = 'transaction_timeout'")}  # since version 17
    for name, value in hostile.items():
        db.sql(f"ALTER DATABASE {db.name} SET {name} = '{value}'")
    old = wait_until(lambda: db.value(WORKER), 20, "the worker")
    db.sql("SELECT pg_terminate_backend(%s)", old)
    wait_until(lambda: db.value(WORKER) not in (None, old), 20, "the next worker")
    db.webhook_sink("crm", receiver, SECRET, retention="1d")
    for n in range(20):
        db.enqueue("Order", f"k{n}")
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events WHERE status = 'SENT'") == 20, 20, "delivery, and the recording")
    for name in hostile:
        db.sql(f"ALTER DATABASE {db.name} RESET {name}")
    said = db.pg.logged(log)
    assert not re.findall(r".* outbox worker  ERROR: .*transaction timeout.*", said), "its parallel workers have the database's settings"


def test_no_connection_is_left(rig, receiver):
    """A worker uses none of max_connections: a dead worker is restarted."""
    pg = rig.postgres(settings={"max_connections": "8", "superuser_reserved_connections": "1", "outbox.poll_interval": "1s"})
    taken = []
    try:
        db = Database(pg, "crowded").create()
        db.webhook_sink("crm", receiver, SECRET)
        old = wait_until(lambda: db.value(WORKER), 20, "the worker")
        while True:
            try:
                taken.append(pg.connect())
            except Exception as e:
                assert "too many clients" in str(e) or "remaining connection slots" in str(e)
                break
        db.sql("SELECT pg_terminate_backend(%s)", old)
        db.enqueue("Order", "1")
        wait_until(receiver.accepted, 20, "the next worker's delivery")
        assert db.value(WORKER) != old
        db.disconnect()
    finally:
        for connection in taken:
            connection.close()
        pg.stop()


def test_more_databases_than_there_is_room_for(rig, receiver):
    """A database that is served stays served, wherever its row in pg_database is."""
    pg = rig.postgres(settings={"autovacuum": "off"})
    try:
        db = Database(pg, "served").create()
        db.webhook_sink("crm", receiver, SECRET)
        old = wait_until(lambda: db.value(WORKER), 20, "the worker")
        db.sql("""
            INSERT INTO pg_database SELECT (jsonb_populate_record(d, jsonb_build_object('oid', 1000000 + n, 'datname', 'none' || n))).*
            FROM pg_database AS d, generate_series(1, 4200) AS n WHERE datname = 'served'""")
        db.sql("UPDATE pg_database SET datname = datname WHERE datname = 'served'")  # its row moves to the end
        db.sql("CREATE DATABASE more")  # and pg_database is scanned
        wait_until(lambda: "outbox serves at most" in pg.log.read_text(errors="replace"), 20, "the launcher to look")
        db.sql("SELECT pg_terminate_backend(%s)", old)
        db.enqueue("Order", "k")
        wait_until(lambda: receiver.accepted(), 30, "the next worker, and an event")
        db.disconnect()
    finally:
        pg.restart("immediate")
        pg.close()
