"""A team's own dispatcher: sinks of kind outbox_manual, claimed from by programs of theirs."""

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest
from outbox_rig import wait_until

DISPATCHER = Path(__file__).with_name("manual_dispatcher.py")


def manual_sink(db, name: str = "mine", **options: str) -> None:
    given = ", ".join(f"{key} '{value}'" for key, value in options.items())
    db.sql(f"CREATE SERVER {name} FOREIGN DATA WRAPPER outbox_manual OPTIONS ({given})")


def start(db, number: int) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, DISPATCHER, db.dsn, "mine", "500ms", str(number)], stderr=subprocess.PIPE, text=True)


def write(db, writer: int, events: int, keys: int) -> None:
    """As an application: the order of a key is that in which its transactions had it locked."""
    with db.connect() as connection:
        for n in range(events):
            with connection.transaction():
                key = connection.execute("SELECT key FROM aggregates WHERE key = %s FOR UPDATE", [f"k{(n * 7 + writer) % keys}"]).fetchone()[0]
                kind = "poison" if n % 50 == 25 else "order.placed"
                connection.execute("SELECT outbox.enqueue('Order', %s::text, %s, '{}')", [key, kind])


def test_dispatchers_that_are_killed_lose_nothing_and_keep_the_order(db):
    manual_sink(db, retry="1ms*1000", max_attempts="3")
    db.sql("CREATE TABLE aggregates AS SELECT 'k' || n AS key FROM generate_series(0, 14) AS n")
    db.sql("CREATE TABLE handled (n bigint GENERATED ALWAYS AS IDENTITY, dispatcher int, id uuid, key text, position bigint)")
    db.sql("ALTER SYSTEM SET synchronous_commit = off")  # faster, and no server is killed here
    db.sql("SELECT pg_reload_conf()")
    writers = [threading.Thread(target=write, args=[db, writer, 150, 15]) for writer in range(3)]
    for writer in writers:
        writer.start()
    dispatchers = [start(db, n) for n in range(4)]
    chance, kills = random.Random(1), 0
    try:
        while any(writer.is_alive() for writer in writers) or kills < 8:
            time.sleep(0.15)  # something is claimed meanwhile
            n = chance.randrange(len(dispatchers))
            dispatchers[n].kill()
            dispatchers[n].communicate()
            kills += 1
            dispatchers[n] = start(db, 10 + kills)
        poison = 3 * sum(n % 50 == 25 for n in range(150))
        wait_until(lambda: db.pending() == 0, 60, lambda: f"{db.pending()} events are left")
    finally:
        for dispatcher in dispatchers:
            dispatcher.kill()
        errors = [dispatcher.communicate()[1] for dispatcher in dispatchers]
        db.sql("ALTER SYSTEM RESET synchronous_commit")
        db.sql("SELECT pg_reload_conf()")
    assert errors == [""] * 4
    # Nothing is lost: each was handled, or is a dead letter after its three attempts
    dead = db.sql("SELECT event_type, attempts FROM outbox.events WHERE status = 'FAILED'")
    assert dead.count(("poison", 3)) == poison
    assert len(dead) == poison and db.value("SELECT count(DISTINCT id) FROM handled") == 450 - poison
    # The first time each is handled is in the order of its key, dead letters aside
    overtaken = db.sql("""SELECT a.key, a.position, b.position
                          FROM (SELECT key, position, min(n) AS n FROM handled GROUP BY key, position) AS a
                          JOIN (SELECT key, position, min(n) AS n FROM handled GROUP BY key, position) AS b USING (key)
                          WHERE a.position < b.position AND a.n > b.n""")
    assert overtaken == []
    # And each was acknowledged once, however often it was handled
    assert db.sink("delivered, failed_total, failed, in_flight", "mine") == (450 - poison, poison, poison, 0)
