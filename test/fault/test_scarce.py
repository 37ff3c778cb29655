"""Memory, connections or timeouts that a user has reduced: the server stays up, and the worker continues."""

import os
import re

from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import SECRET

WORKER = "SELECT pid FROM outbox.workers WHERE database = current_database()"


def limit_memory(pg, pid: int, more: int | None) -> None:
    """Allows the process `more` bytes in addition to its present memory; None: no limit."""
    pages = int(open(f"/proc/{pid}/statm").read().split()[0])
    limit = "unlimited" if more is None else str(pages * os.sysconf("SC_PAGESIZE") + more)
    pg._run("prlimit", f"--pid={pid}", f"--as={limit}:")  # as the worker's user, who is allowed to


def test_an_event_that_there_is_no_memory_for(db, pg, receiver):
    """The event waits with its key, other keys continue, and it is sent when there is memory; no process crashes."""
    db.webhook_sink("crm", receiver, SECRET)
    db.enqueue("Order", "warm", payload='"warm"')
    wait_until(lambda: db.pending() == 0, 20, "a first event")
    receiver.clear()
    worker = db.value(WORKER)
    limit_memory(pg, worker, 24 << 20)
    for n in range(3):
        db.sql("SELECT outbox.enqueue('Order', 'large', 'e', to_jsonb(repeat('x', 15000000)))")
    db.enqueue("Order", "large", payload='"after"')
    for n in range(20):
        db.enqueue("Order", f"small{n}", payload='"small"')
    wait_until(lambda: len(receiver.accepted()) == 20, 30, lambda: f"the others, got {len(receiver.accepted())}")
    wait_until(lambda: "out of memory" in (db.value("SELECT last_error FROM outbox.sinks") or ""), 20, "the reason")
    assert db.pending() >= 4 and {d.json()["data"] for d in receiver.accepted()} == {"small"}
    limit_memory(pg, worker, None)
    wait_until(lambda: db.pending() == 0, 40, lambda: f"the large ones to go: {db.sql('SELECT * FROM outbox.sinks')}")
    assert [len(d.body) > 1000000 for d in receiver.accepted()][20:] == [True, True, True, False]
    assert db.value(WORKER) == worker


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
