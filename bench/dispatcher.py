"""The dispatcher that the pattern's articles show, as a program: 100 rows, SKIP LOCKED, send, flush, mark, commit, until none is left.

    dispatcher.py CONNINFO BROKERS LINGER_MS

Prints one line of JSON."""

import json
import sys
import time

import psycopg
from confluent_kafka import Producer

CLAIM = """SELECT id, aggregate_type, aggregate_id, payload::text FROM outbox WHERE sent_at IS NULL
           ORDER BY number LIMIT 100 FOR UPDATE SKIP LOCKED"""
MARK = "UPDATE outbox SET sent_at = now() WHERE id = ANY(%s)"


def dispatch(connection: psycopg.Connection, producer: Producer) -> int:
    failed = []
    with connection.transaction():
        rows = connection.execute(CLAIM).fetchall()
        for id, aggregate_type, key, payload in rows:
            producer.produce(f"outbox.event.{aggregate_type}", payload, key, headers={"id": str(id)},
                             on_delivery=lambda error, _: failed.append(error) if error else None)
        if producer.flush(30) or failed:
            raise RuntimeError(f"not delivered: {failed[:3]}")
        connection.execute(MARK, ([row[0] for row in rows],))
    return len(rows)


def main() -> None:
    conninfo, brokers, linger = sys.argv[1:]
    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "compression.type": "lz4", "linger.ms": linger})
    producer.list_topics(timeout=10)  # connected before the clock starts
    with psycopg.connect(conninfo, autocommit=True) as connection:
        started, used, events = time.monotonic(), time.process_time(), 0
        while count := dispatch(connection, producer):
            events += count
    seconds = time.monotonic() - started
    print(json.dumps({"events": events, "seconds": seconds, "rate": events / seconds, "cpu_us_per_event": (time.process_time() - used) / events * 1e6}))


main()
