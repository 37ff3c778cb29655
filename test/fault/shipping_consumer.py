"""A consumer that dies: shipping_consumer.py DSN BROKERS TOPIC SEED ONE_IN [POINT]. Of ONE_IN events it ends at one, at any of the POINTS (0: never); POINT: at
its third event it ends there. As docs/consuming.md has it: the mark and the work are one transaction, the offset comes after."""

import json
import os
import random
import sys

import confluent_kafka
import psycopg

POINTS = ["polled", "marked", "worked", "committed", "acknowledged"]


class Crash:
    def __init__(self, seed: str, one_in: int, certain: str | None):
        self._dice, self._one_in, self._certain = random.Random(seed), one_in, certain
        self._seen = 0
        self._next: str | None = None

    def event(self) -> None:
        self._seen += 1
        self._next = self._certain if self._seen == 3 else None
        if not self._next and self._one_in and self._dice.randrange(self._one_in) == 0:
            self._next = self._dice.choice(POINTS)

    def here(self, point: str, event: str) -> None:
        if point == self._next:
            print(f"dies at event {event}: {point}", flush=True)
            os._exit(1)


def main() -> None:
    dsn, brokers, topic, seed, one_in, *certain = sys.argv[1:]
    crash = Crash(seed, int(one_in), certain[0] if certain else None)
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": brokers, "group.id": f"shipping-{topic}", "enable.auto.commit": False, "auto.offset.reset": "earliest",
        "group.instance.id": "shipping-1", "session.timeout.ms": 6000, "max.poll.interval.ms": 10000,  # a consumer that died is replaced at once, before its session times out
        "fetch.wait.max.ms": 10, "log_level": 0,
    })
    consumer.subscribe([topic])
    with psycopg.connect(dsn, autocommit=True) as connection:
        while True:
            message = consumer.poll(1)
            if message is None or message.error():
                continue
            event = dict(message.headers())["id"].decode()
            crash.event()
            crash.here("polled", event)
            with connection.transaction():
                first_time = connection.execute("SELECT outbox_inbox.mark_processed(%s, 'shipping')", [event]).fetchone()[0]
                crash.here("marked", event)
                body = json.loads(message.value())
                ledger = "shipments" if first_time else "refused"
                connection.execute(f"INSERT INTO {ledger} VALUES (%s, %s, %s, %s)", [event, body["key"], body["n"], body["transaction"]])
                crash.here("worked", event)
            crash.here("committed", event)
            consumer.commit(message, asynchronous=False)
            crash.here("acknowledged", event)


main()
