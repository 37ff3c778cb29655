"""A poller as applications write them, for the table events_to_send: poller.py DSN BOOTSTRAP TOPIC
status|published_at. Runs until SIGTERM; SIGUSR1 pauses it between two rounds, SIGUSR2 continues it."""

import signal
import sys
import threading

import confluent_kafka
import psycopg
from psycopg.rows import namedtuple_row

TAKE = "SELECT *, payload::text AS text, coalesce((payload->>'fails')::int, 0) AS fails FROM events_to_send WHERE {} ORDER BY {} LIMIT 10 FOR UPDATE SKIP LOCKED"
ATTEMPTS = 3


def send(producer: confluent_kafka.Producer, topic: str, rows: list) -> None:
    for row in rows:
        producer.produce(topic, key=row.aggregate_id, value=row.text, headers=[("id", str(row.id).encode())])
    producer.flush()


def by_published_at(db: psycopg.Connection, producer: confluent_kafka.Producer, topic: str) -> int:
    """Sends within the transaction that locks the rows."""
    with db.transaction():
        rows = db.execute(TAKE.format("published_at IS NULL", "created_at, id")).fetchall()
        send(producer, topic, rows)
        db.execute("UPDATE events_to_send SET published_at = now() WHERE id = ANY(%s)", ([row.id for row in rows],))
    return len(rows)


def by_status(db: psycopg.Connection, producer: confluent_kafka.Producer, topic: str) -> int:
    """Takes rows, sends them, marks them: three transactions. A failed event is retried up to ATTEMPTS times."""
    with db.transaction():
        rows = db.execute(TAKE.format("status IN ('NEW', 'FAILED')", "id")).fetchall()
        db.execute("UPDATE events_to_send SET status = 'PROCESSING', attempts = attempts + 1 WHERE id = ANY(%s)", ([row.id for row in rows],))
    good = [row for row in rows if row.fails <= row.attempts]
    send(producer, topic, good)
    db.execute("UPDATE events_to_send SET status = 'SENT' WHERE id = ANY(%s)", ([row.id for row in good],))
    db.execute("UPDATE events_to_send SET status = CASE WHEN attempts < %s THEN 'FAILED' ELSE 'ERROR' END WHERE id = ANY(%s)",
               (ATTEMPTS, [row.id for row in rows if row not in good]))
    return len(rows)


def main() -> None:
    dsn, bootstrap, topic, kind = sys.argv[1:]
    stop, paused = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGUSR1, lambda *_: paused.set())
    signal.signal(signal.SIGUSR2, lambda *_: paused.clear())
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "partitioner": "murmur2_random"})
    with psycopg.connect(dsn, autocommit=True, row_factory=namedtuple_row) as db:
        work = by_status if kind == "status" else by_published_at
        while not stop.is_set():
            if paused.is_set() or not work(db, producer, topic):
                stop.wait(0.05)


if __name__ == "__main__":
    main()
