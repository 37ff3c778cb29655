"""A database with nothing due has no worker, and committing an event works as if it had one."""

import random
import threading
import time

import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import SECRET, slow, status

BUSY = "SELECT count(*) FROM outbox.workers WHERE database = current_database()"


@pytest.fixture
def hook(db, receiver, setting):
    """A webhook sink of a database whose worker exits as soon as it may."""
    setting("outbox.worker_idle_timeout", "50ms")
    db.webhook_sink("crm", receiver, SECRET, retry="100ms..200ms", max_attempts="2")
    return receiver


def rests(db) -> bool:
    return db.value("SELECT idle FROM outbox_internal.library()") and db.value(BUSY) == 0


def wait_for_rest(db) -> None:
    wait_until(lambda: rests(db), 20,
               lambda: f"the worker to leave: {db.sql('SELECT pid, state, last_loop_at, clock_timestamp(), workers FROM outbox.workers')}, "
                       f"{db.sql('SELECT pid, backend_type, wait_event, query FROM pg_stat_activity WHERE backend_type ~ %s', 'outbox')}, "
                       f"{db.sql('SELECT name, state FROM outbox.sinks')}")


def wait_for(receiver, expected: list) -> None:
    wait_until(lambda: receiver.payloads() == expected, 10, lambda: f"{expected}, got {receiver.payloads()}")


def test_an_idle_worker_leaves_and_comes_back(db, hook):
    for n in range(3):
        wait_for_rest(db)
        assert db.sql("SELECT status FROM outbox.doctor() WHERE \"check\" = 'worker'") == [("ok",)]
        db.enqueue("Order", "k", payload=str(n))
        wait_for(hook, list(range(n + 1)))
    wait_for_rest(db)
    assert db.pending() == 0
    assert db.value("SELECT state FROM outbox.sinks") == "idle", "at rest it misses no worker"


def test_the_event_comes_before_housekeeping(db, hook):
    """A day's partition is missing, and an event trigger lets nobody make it: the worker that an event has started sends it before it stands there."""
    stands = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'outbox worker' AND wait_event = 'PgSleep'"
    wait_for_rest(db)
    [(day,)] = db.sql("SELECT max(relid::text) FROM pg_partition_tree('outbox.events_sent') WHERE isleaf")
    db.sql("CREATE TABLE closed AS SELECT true AS yes")
    db.sql("""CREATE FUNCTION stand() RETURNS event_trigger LANGUAGE plpgsql AS $$
              BEGIN WHILE (SELECT yes FROM public.closed) LOOP PERFORM pg_sleep(0.01); END LOOP; END $$""")
    db.sql(f"DROP TABLE {day}")
    db.sql("CREATE EVENT TRIGGER stand ON ddl_command_start WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION stand()")
    db.enqueue("Order", "k", payload="1")
    wait_for(hook, [1])
    wait_until(lambda: db.value(stands), 20, "the worker to make the day")
    db.sql("UPDATE closed SET yes = false")
    wait_for_rest(db)
    assert db.value("SELECT to_regclass(%s) IS NOT NULL", day)


def test_a_worker_stays_when_told_so(db, receiver, setting):
    setting("outbox.worker_idle_timeout", "0")
    setting("outbox.poll_interval", "100ms")
    [(pid,)] = wait_until(lambda: db.sql("SELECT pid FROM outbox.workers WHERE database = current_database()"), 10, "the worker")
    rounds = "SELECT last_loop_at FROM outbox.workers WHERE pid = %s"
    for _ in range(5):
        last = db.value(rounds, pid)
        wait_until(lambda: db.value(rounds, pid) != last, 10, "its next round")


def test_what_is_scheduled_is_sent_in_time(db, hook):
    """By a worker that starts for it. If the worker needs longer to exit than the first event waits, the next one waits longer."""
    for n, seconds in enumerate((6, 20, 100)):
        wait_for_rest(db)
        db.sql("SELECT outbox.enqueue('Order', 'k', 'e', to_jsonb(%s::int), available_at => clock_timestamp() + %s * interval '1 s')", n, seconds)
        rested = wait_until(lambda: hook.payloads()[n:] or rests(db) and "rests", 2 * seconds, "the worker to leave") == "rests"
        rested = rested and db.value("SELECT available_at > clock_timestamp() FROM outbox.events")
        wait_until(lambda: hook.payloads()[n:], 2 * seconds, "the event")
        assert hook.payloads() == list(range(n + 1))
        if rested:
            return
    pytest.fail("the worker does not rest while an event is scheduled")


CALLS = {
    "update": "UPDATE outbox.events SET available_at = NULL WHERE partition_key = 'later'",
    "prepared": ("BEGIN", "UPDATE outbox.events SET available_at = NULL WHERE partition_key = 'later'", "PREPARE TRANSACTION 'rest'",
                 "COMMIT PREPARED 'rest'"),
    "alter server": "ALTER SERVER crm OPTIONS (SET events '*')",
    "redrive": "SELECT outbox.redrive(id) FROM outbox.events WHERE status = 'FAILED'",
}


@pytest.mark.parametrize("call", CALLS)
def test_whatever_gives_it_work_calls_it(db, hook, call):
    """An event becomes due, an event matches a new sink, a dead letter is redriven."""
    db.enqueue("Order", "later", event_type="other" if call == "alter server" else "e", payload="1", available_at="2099-01-01")
    if call == "alter server":
        db.sql("ALTER SERVER crm OPTIONS (ADD events 'none')")
        db.enqueue("Order", "unrouted", payload="1")
    if call == "redrive":
        hook.mode = status(400)
        db.enqueue("Order", "dead", payload="1")
        wait_until(lambda: db.value("SELECT count(*) FROM outbox.events WHERE status = 'FAILED'") == 1, 20, "a dead letter")
        hook.mode = status(200)
    wait_for_rest(db)
    assert hook.payloads() == []
    for statement in [CALLS[call]] if isinstance(CALLS[call], str) else CALLS[call]:
        db.sql(statement)
    wait_for(hook, [1])


def test_another_identity_gives_it_work(db, hook, setting):
    """outbox.identity decides which events belong to the server: changing it starts the worker of an idle database
    that has events of the new identity."""
    setting("outbox.cluster_name", "before")
    hook.mode = status(503)
    db.enqueue("Order", "k", payload="1")
    setting("outbox.cluster_name", "after")
    hook.mode = status(200)
    wait_for_rest(db)
    assert hook.payloads() == [] and db.pending() == 1
    setting("outbox.cluster_name", "before")
    wait_for(hook, [1])


def test_a_worker_that_is_to_stay_comes(db, hook, setting):
    wait_for_rest(db)
    setting("outbox.worker_idle_timeout", "0")
    wait_until(lambda: db.value(BUSY) == 1, 10, "the worker")


@pytest.mark.slow
def test_no_commit_is_missed_while_workers_come_and_go(db, hook, setting):
    """Events are committed around the times at which workers exit; each is sent at once, not only at the next safety
    check."""
    setting("outbox.poll_interval", "1h")
    setting("outbox.workers", "2")
    chance = random.Random(7)
    before = db.value("SELECT count(*) FROM outbox.events")
    for n in range(120):
        db.enqueue("Order", f"k{n % 3}", payload=str(n))
        wait_until(lambda: len(hook.payloads()) == n + 1, 10, lambda: f"event {n}: {db.sql('SELECT * FROM outbox.workers')}", interval=0.002)
        time.sleep(chance.choice([0, 0.002, chance.uniform(0.05, 0.1)]))
    assert hook.payloads() == list(range(120)) and before == 0


@pytest.mark.slow
def test_more_databases_than_worker_slots(rig, receiver):
    """Every database gets its events delivered, including those that wait for a slot."""
    with rig.postgres(settings={"max_worker_processes": "6", "outbox.worker_idle_timeout": "1h"}) as pg:
        first = Database(pg, "first").create()
        first.webhook_sink("crm", receiver, SECRET)
        wait_until(lambda: first.value(BUSY) == 1, 20, "a worker")
        first.disconnect()
        databases = []
        with pg.connect() as admin:
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
            for n in range(12):
                admin.execute(f"CREATE DATABASE many{n} TEMPLATE first")
                databases.append(Database(pg, f"many{n}"))
        for n, database in enumerate(databases):
            database.enqueue("Order", "k", payload=str(n))
        wait_until(lambda: sorted(receiver.payloads()) == list(range(12)), 60, lambda: f"all of them, got {receiver.payloads()}")
        for database in databases:
            database.disconnect()


@pytest.mark.slow
def test_all_keys_are_delivered_when_a_database_loses_one_of_its_slots(rig, receiver):
    """Three busy databases that want two workers each share three slots."""
    with rig.postgres(settings={"max_worker_processes": "5", "outbox.workers": "2", "outbox.worker_idle_timeout": "1h"}) as pg:
        receiver.mode = slow(0.2)
        databases = []
        stop = threading.Event()

        def keep_busy(database) -> None:
            with database.connect() as connection:
                while not stop.wait(0.05):
                    connection.execute("SELECT outbox.enqueue('Order', 'busy' || n, 'e', '0') FROM generate_series(1, 4) AS n")

        writers = []
        try:
            for n in range(3):
                database = Database(pg, f"busy{n}").create()
                database.webhook_sink("crm", receiver, SECRET)
                databases.append(database)
                writers.append(threading.Thread(target=keep_busy, args=[database]))
                writers[-1].start()
                database.enqueue("Order", "first", payload=f'"first {n}"')
                wait_until(lambda n=n: f"first {n}" in receiver.payloads(), 30, "its first event")
            for turn in range(3):
                expected = set()
                for n, database in enumerate(databases):
                    for key in range(16):
                        database.enqueue("Order", f"k{key}", payload=f'"{n} {key} {turn}"')
                        expected.add(f"{n} {key} {turn}")
                wait_until(lambda: expected <= set(receiver.payloads()), 30,
                           lambda: f"turn {turn}: missing {sorted(expected - set(receiver.payloads()))}, {databases[0].sql('SELECT * FROM outbox.workers')}")
        finally:
            stop.set()
            for writer in writers:
                writer.join()
            for database in databases:
                database.disconnect()
