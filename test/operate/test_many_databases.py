"""More databases than background worker slots: they share the slots, and none waits for a busy, hanging or broken
one."""

import os
from collections import Counter, defaultdict

import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import HANG, OK, SECRET, slow

pytestmark = pytest.mark.slow

MANY = 50
BUSY = [f"many{n}" for n in range(8)]  # more than there are slots
HANGING, BROKEN = "many8", "many9"
CALM = [f"many{n}" for n in range(10, MANY)]
BURST = 20


def answer(delivery):
    """One database sends slowly: its worker could be busy for minutes."""
    name = delivery.json()["data"]["database"]
    return HANG if name == HANGING else slow(0.02) if name in BUSY else OK


@pytest.fixture(scope="module")
def many(rig):
    """Six of eight slots are for workers: one is the launcher's, one PostgreSQL's own."""
    pg = rig.postgres(settings={"max_worker_processes": "8", "outbox.poll_interval": "1s"})
    receiver = rig.receiver(secret=SECRET, mode=answer)
    first = Database(pg, "first")
    first.create()
    first.webhook_sink("crm", receiver, SECRET, concurrency="1")
    first.disconnect()
    with pg.connect() as admin:
        for n in range(MANY):
            admin.execute(f"CREATE DATABASE many{n} TEMPLATE first")
    yield pg, receiver
    receiver.stop()
    pg.stop()


def enqueue(pg, name: str, events: int) -> None:
    """Events of one key in one transaction."""
    with pg.connect(name) as connection:
        connection.execute("""SELECT outbox.enqueue('Order', 'key', 'e', jsonb_build_object('database', current_database(), 'n', n))
                              FROM generate_series(1, %s) AS n""", [events])


def delivered(receiver) -> dict[str, list[int]]:
    """Deliveries by database."""
    numbers = defaultdict(list)
    for delivery in receiver.accepted():
        data = delivery.json()["data"]
        numbers[data["database"]].append(data["n"])
    return numbers


@pytest.mark.timeout(300)
def test_fifty_databases_share_six_slots(many):
    pg, receiver = many
    backlog = 10_000
    for name in [*BUSY, HANGING]:
        enqueue(pg, name, backlog)
    broken = Database(pg, BROKEN)
    folder = pg.data / "base" / str(broken.value("SELECT oid FROM pg_database WHERE datname = current_database()"))
    enqueue(pg, BROKEN, BURST)
    broken.disconnect()
    wait_until(lambda: delivered(receiver)[BROKEN] == [*range(1, BURST + 1)], 60, "the first delivery of the one that will break")
    os.rename(folder / "PG_VERSION", folder / "away")  # its worker dies right after every start
    waiting = Database(pg, CALM[0])
    try:
        for name in CALM:
            enqueue(pg, name, BURST)
        with pg.connect() as admin:  # the launcher notices databases that are dropped and created meanwhile
            admin.execute(f"DROP DATABASE {CALM[-1]} WITH (FORCE)")
            admin.execute(f"CREATE DATABASE {CALM[-1]} TEMPLATE first")
        enqueue(pg, CALM[-1], BURST)
        status, detail, _ = waiting.doctor("worker")
        assert status == "ok", detail  # whether or not it has a slot now
        wait_until(lambda: all(len(delivered(receiver)[name]) >= BURST for name in CALM), 100,
                   lambda: str({name: len(numbers) for name, numbers in delivered(receiver).items()}), interval=0.5)
        before = Counter({name: len(delivered(receiver)[name]) for name in BUSY})
        assert all(before.values()), before
        wait_until(lambda: all(len(delivered(receiver)[name]) > before[name] + 20 for name in BUSY), 100,
                   lambda: str((before, {name: len(delivered(receiver)[name]) for name in BUSY})), interval=0.5)
        for name in BUSY:  # their time slices were over, but not their work
            assert len(delivered(receiver)[name]) < backlog
        for name in [*BUSY, *CALM]:  # the end of a time slice costs neither order nor duplicates
            numbers = delivered(receiver)[name]
            expected = [*range(1, len(numbers) + 1)]
            assert numbers == expected if name != CALM[-1] else numbers[-BURST:] == expected[:BURST], name

        found = wait_until(lambda: next((row for name in [*BUSY, HANGING] if "waits for a worker slot" in (row := doctor(pg, name))[1]), None), 90,
                           "a database that waits for its turn")
        assert found[0] == "ok" and "by turns" in found[1] and "max_worker_processes = 16" in found[2]
    finally:
        waiting.disconnect()
        os.rename(folder / "away", folder / "PG_VERSION")
    assert "no free background worker slot" not in pg.log.read_text() or "take turns" in pg.log.read_text()


def doctor(pg, name: str) -> tuple:
    database = Database(pg, name)
    try:
        return database.doctor("worker")
    finally:
        database.disconnect()
