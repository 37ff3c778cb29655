"""A user's own dispatcher: outbox.claim() and outbox.ack() of 100 rows at a time, compared with the articles' poller
(100 rows, SKIP LOCKED, mark, commit), which keeps no order. Neither sends anything, so only the tables are measured.
Alternating, in one database."""

import time

import psycopg
from measure import median
from outbox_rig.database import Database
from peer_dispatcher import TABLE
from results import Results, Row
from stage import Stage, progress

POLL = "SELECT id, aggregate_type, aggregate_id, payload FROM outbox WHERE sent_at IS NULL ORDER BY number LIMIT 100 FOR UPDATE SKIP LOCKED"
MARK = "UPDATE outbox SET sent_at = now() WHERE id = ANY(%s)"
claimed: list[tuple] = []
CLAIM = "SELECT id, aggregate_type, aggregate_id, payload, token FROM outbox.claim('mine')"


def poll(connection: psycopg.Connection) -> int:
    with connection.transaction():
        rows = connection.execute(POLL).fetchall()
        connection.execute(MARK, [[row[0] for row in rows]])
    return len(rows)


def claim(connection: psycopg.Connection) -> int:
    """Acknowledges the previous batch and claims the next one in the same transaction, as the poller does."""
    global claimed
    with connection.transaction():
        if claimed:
            connection.execute("SELECT outbox.ack(%s, %s)", [claimed[0][4], [row[0] for row in claimed]])
        claimed = connection.execute(CLAIM).fetchall()
    return len(claimed)


def drain(db: Database, step) -> float:
    """Events per second until none is left."""
    with db.connect() as connection:
        started, events = time.monotonic(), 0
        while count := step(connection):
            events += count
        return events / (time.monotonic() - started)


def rates(db: Database, events: int, rounds: int) -> tuple[float, float]:
    db.sql(TABLE)
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER mine FOREIGN DATA WRAPPER outbox_manual")
    columns = "aggregate_type, aggregate_id, event_type, payload"
    found: dict[str, list[float]] = {"outbox": [], "outbox.events": []}
    for _ in range(rounds):
        for table, step in ("outbox", poll), ("outbox.events", claim):
            db.sql(f"INSERT INTO {table} ({columns}) SELECT 'Order', 'k' || n % 1000, 'order.created', jsonb_build_object('n', n, 'text', repeat('x', 200)) "
                   f"FROM generate_series(1, {events}) AS n")
            db.sql(f"VACUUM ANALYZE {table}")
            found[table].append(drain(db, step))
    return median(found["outbox.events"]), median(found["outbox"])


def measure(stage: Stage, results: Results, events: int, rounds: int) -> None:
    with stage.database("manual") as db:
        ours, poller = rates(db, events, rounds)
    progress(f"claim and ack of 100 rows: {ours:,.0f} events/s, the articles' poller {poller:,.0f}")
    results.data |= {"claim_ack": ours, "poller": poller}
    results.rows.append(Row("claim + ack, 100 rows, one dispatcher", ours, "events/s", poller, "the articles' poller, without order"))
