"""Applications behind PgBouncer in transaction mode: each transaction can use another server connection."""

import asyncio
import json
import threading
import uuid
from collections import defaultdict

import asyncpg
import psycopg
import pytest
from outbox_rig import pgbouncer, wait_until
from outbox_rig.receiver import SECRET

pytestmark = pytest.mark.slow

CLIENTS, TRANSACTIONS = 6, 20
INSERT = "INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) VALUES ({}, {}, {}, {}) RETURNING id"
ENQUEUE = "SELECT outbox.enqueue({}, {}, {}, {}::jsonb)"


class Ledger:
    def __init__(self):
        self.committed: list[tuple[str, str, int]] = []
        self.rolled_back: set[str] = set()
        self._lock = threading.Lock()

    def note(self, commits: bool, events: list[tuple[str, str, int]]) -> None:
        with self._lock:
            if commits:
                self.committed += events
            else:
                self.rolled_back |= {event[0] for event in events}


def by_psycopg(dsn: str, prepares: bool, client: int, ledger: Ledger) -> None:
    with psycopg.connect(dsn, prepare_threshold=1 if prepares else None) as connection:
        for n in range(TRANSACTIONS):
            events = []
            for half, statement in enumerate((INSERT, ENQUEUE)):
                number = 2 * n + half
                [(event,)] = connection.execute(statement.format("%s", "%s::text" if half else "%s", "%s", "%s"),
                                                ["Order", str(client), "OrderPlaced", json.dumps({"n": number})]).fetchall()
                events.append((str(event), str(client), number))
            connection.rollback() if n % 5 == 4 else connection.commit()
            ledger.note(n % 5 != 4, events)


def by_asyncpg(dsn: str, prepares: bool, client: int, ledger: Ledger) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(**dict(pair.replace("dbname", "database").split("=") for pair in dsn.split()), **({} if prepares else {"statement_cache_size": 0}))
        for n in range(TRANSACTIONS):
            events = []
            transaction = connection.transaction()
            await transaction.start()
            for half, statement in enumerate((INSERT, ENQUEUE)):
                number = 2 * n + half
                event = await connection.fetchval(statement.format("$1", "$2::text", "$3", "$4"), "Order", str(client), "OrderPlaced", json.dumps({"n": number}))
                events.append((str(event), str(client), number))
            await (transaction.rollback() if n % 5 == 4 else transaction.commit())
            ledger.note(n % 5 != 4, events)
        await connection.close()

    asyncio.run(run())


@pytest.mark.parametrize("prepares", [False, True], ids=["statements by text", "prepared statements"])
def test_events_of_applications_behind_a_pooler(db, pg, rig, receiver, prepares):
    """Six clients share two connections. Without prepared statements, the pooler also sends DISCARD ALL after each
    transaction; with them, it prepares statements again where needed."""
    if prepares and pgbouncer.version() < (1, 21):
        pytest.skip("PgBouncer knows max_prepared_statements since 1.21")
    db.webhook_sink("crm", receiver, SECRET)
    pooler = rig.pgbouncer(pg, default_pool_size=2, **({"max_prepared_statements": 50} if prepares else {"server_reset_query_always": 1}))
    ledger, errors = Ledger(), []

    def client(number: int) -> None:
        try:
            (by_asyncpg if number % 2 else by_psycopg)(pooler.dsn(db.name), prepares, number, ledger)
        except Exception as error:
            errors.append(error)

    try:
        clients = [threading.Thread(target=client, args=[number]) for number in range(CLIENTS)]
        for each in clients:
            each.start()
        seen = 0
        while alive := [each for each in clients if each.is_alive()]:
            seen = max(seen, db.value("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND client_addr IS NULL"
                                      " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"))
            alive[0].join(0.02)
    finally:
        for each in clients:
            each.join()
        pooler.close()
    assert not errors
    assert 1 <= seen <= 2, "the pooler's connections"
    wait_until(lambda: db.pending() == 0, 30, "delivery")
    got = {d.id: json.loads(d.body)["data"]["n"] for d in receiver.accepted()}
    assert got == {event: n for event, _, n in ledger.committed}
    assert len(got) == CLIENTS * TRANSACTIONS * 2 * 4 // 5 and not got.keys() & ledger.rolled_back
    assert all(uuid.UUID(event).version == 7 for event in got)
    order, keys = defaultdict(list), {event: key for event, key, _ in ledger.committed}
    for d in receiver.accepted():
        order[keys[d.id]].append(got[d.id])
    assert all(numbers == sorted(numbers) for numbers in order.values())
