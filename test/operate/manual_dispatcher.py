"""A user's own dispatcher, as docs/manual.md shows it, that records what it does; test_manual.py runs it in processes
that are killed.

manual_dispatcher.py CONNINFO SINK LEASE NUMBER

It writes each handled event into the table handled, in a transaction of its own before the ack: this stands for the
message that was sent. Some events fail once, some always; some acks are late."""

import os
import random
import sys
import time

import psycopg
from psycopg.rows import namedtuple_row

HANDLED = "INSERT INTO handled (dispatcher, id, key, position) VALUES (%s, %s, %s, %s)"


def main() -> None:
    conninfo, sink, lease, number = sys.argv[1:]
    chance = random.Random(int(number))
    with psycopg.connect(conninfo, autocommit=True, row_factory=namedtuple_row) as db:
        while True:
            events = db.execute("SELECT * FROM outbox.claim(%s, %s, %s)", [sink, chance.choice([1, 5, 20]), lease]).fetchall()
            failed = set()
            for e in events:
                if e.partition_key in failed:
                    continue
                if e.event_type == "poison" or (e.attempts == 0 and chance.random() < 0.05):
                    db.execute("SELECT outbox.nack(%s, %s, 'no luck', %s)", [e.token, e.id, None if e.event_type == "poison" else "1ms"])
                    failed.add(e.partition_key)
                    continue
                db.execute(HANDLED, [os.getpid(), e.id, e.partition_key, e.position])
                if chance.random() < 0.01:
                    time.sleep(0.8)  # after the lease has expired
                db.execute("SELECT outbox.ack(%s, ARRAY[%s])", [e.token, e.id])
            if not events:
                time.sleep(0.02)


main()
