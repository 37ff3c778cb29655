"""The application of the demo: customers buy, and each purchase is published.

app.py {outbox | commit-then-produce | produce-then-commit} DSN BROKER COUNT PER_SECOND START

The same code publishes in one of three ways. It can be killed at any time and started again: it continues until
COUNT purchases are in the database. If the connection breaks during COMMIT, it looks the purchase up; if the
purchase failed, it is made again under a new id, as a customer would."""

import contextlib
import json
import random
import sys
import threading
import time
import uuid

import confluent_kafka
import psycopg

WRITERS = 4
CUSTOMERS = 100


class Refused(Exception):
    """The purchase could not be published, so it was not made."""


class Application:
    def __init__(self, way: str, dsn: str, broker: str, count: int, per_second: float, start: float):
        self.way, self.dsn, self.count = way, dsn, count
        self.lock = threading.Lock()
        with self.connect() as connection:
            self.made = connection.execute("SELECT count(*) FROM purchases WHERE way = %s", [way]).fetchone()[0]
        self.per_second, self.start = per_second, start
        self.under_way = 0
        self.producer = None
        if way != "outbox":
            self.producer = confluent_kafka.Producer({
                "bootstrap.servers": broker, "enable.idempotence": True, "log_level": 0,
                # An application that answers its customer only after the broker's acknowledgement cannot wait for
                # minutes.
                **({"message.timeout.ms": 2000} if way == "produce-then-commit" else {})})

    def connect(self) -> psycopg.Connection:
        while True:
            try:
                return psycopg.connect(self.dsn, connect_timeout=5)
            except psycopg.OperationalError:
                time.sleep(0.1)  # the server is down

    # ---- one purchase ------------------------------------------------------------------------------------------

    def purchase(self, connection: psycopg.Connection, purchase: uuid.UUID) -> None:
        customer = f"{self.way}-{random.randrange(CUSTOMERS)}"
        number = connection.execute("UPDATE customers SET purchases = purchases + 1 WHERE id = %s RETURNING purchases",
                                    [customer]).fetchone()[0]
        connection.execute("INSERT INTO purchases VALUES (%s, %s, %s, %s)", [purchase, self.way, customer, number])
        payload = json.dumps({"customer": customer, "number": number})
        if self.way == "outbox":
            connection.execute("SELECT outbox.enqueue('Purchase', %s::text, 'purchase.made', %s::jsonb, id => %s)",
                               [customer, payload, purchase])
        if random.random() < 0.02:  # the customer cancels
            connection.rollback()
            raise Refused
        if self.way == "produce-then-commit":
            self.produce_and_wait(purchase, customer, payload)
        self.commit(connection, purchase)
        if self.way == "commit-then-produce":
            self.produce(purchase, customer, payload)

    def commit(self, connection: psycopg.Connection, purchase: uuid.UUID) -> None:
        try:
            connection.commit()
        except psycopg.OperationalError:
            # The outcome is unknown: the database tells whether the purchase was committed.
            with self.connect() as again:
                if not again.execute("SELECT 1 FROM purchases WHERE id = %s", [purchase]).fetchone():
                    raise

    def produce(self, purchase: uuid.UUID, customer: str, payload: str, on_delivery=None) -> None:
        self.producer.produce(self.way, payload, customer, headers={"id": str(purchase)}, on_delivery=on_delivery)
        self.producer.poll(0)

    def produce_and_wait(self, purchase: uuid.UUID, customer: str, payload: str) -> None:
        answer = []
        self.produce(purchase, customer, payload, lambda error, _: answer.append(error))
        while not answer:
            self.producer.poll(0.01)
        if answer[0]:
            raise Refused

    # ---- writers -----------------------------------------------------------------------------------------------

    def take_turn(self) -> bool:
        """Waits until another purchase is due; False when all are made or being made."""
        with self.lock:
            turn = self.made + self.under_way
            if turn >= self.count:
                return False
            self.under_way += 1
        time.sleep(max(0, self.start + turn / self.per_second - time.time()))
        return True

    def write(self) -> None:
        connection = self.connect()
        while self.made < self.count:
            if not self.take_turn():
                time.sleep(0.01)  # another writer may still fail, which leaves its purchase to this one
                continue
            made = 0
            try:
                self.purchase(connection, uuid.uuid4())
                made = 1
            except (Refused, psycopg.OperationalError):
                with contextlib.suppress(psycopg.OperationalError):
                    connection.rollback()
            finally:
                with self.lock:
                    self.under_way -= 1
                    self.made += made
            if connection.closed or connection.broken:
                connection = self.connect()

    def run(self) -> None:
        writers = [threading.Thread(target=self.write) for _ in range(WRITERS)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        if self.producer:
            self.producer.flush(60)


if __name__ == "__main__":
    way, dsn, broker, count, per_second, start = sys.argv[1:]
    Application(way, dsn, broker, int(count), float(per_second), float(start)).run()
