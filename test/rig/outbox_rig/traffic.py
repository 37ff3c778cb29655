"""Applications that write during a fault, and the checks afterwards."""

import json
import random
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import psycopg

from .database import Database
from .writers import Writers


@dataclass
class Transaction:
    """The events that it enqueued: id, key, number within the key."""

    events: list[tuple[str, str, int]] = field(default_factory=list)
    asynchronous: bool = False  # synchronous_commit = off: a crash may undo it


class Traffic(Writers):
    """Concurrent writers, each with keys of its own: a business row and its events in one transaction, every fifth
    rolled back. If the result of a commit was lost, the business row shows whether it happened."""

    def __init__(self, db: Database, aggregate: str, writers: int = 4, options: str = "", keys: int = 5, pause: float = 0.005):
        """`options`: for the writers' sessions, such as "-c synchronous_commit=off". `keys`: per writer. `pause`:
        seconds after each transaction. It may be changed at any time, and so may `asynchronous`, the share of
        transactions that commit without waiting for their WAL, and `held`: no transaction begins."""
        super().__init__(writers)
        self.db, self.aggregate, self.options, self.keys, self.pause = db, aggregate, options, keys, pause
        self.asynchronous, self.held = 0.0, False
        self.transactions: dict[str, Transaction] = {}
        self.acknowledged: set[str] = set()  # transactions that the writers know to be committed
        self._lock = threading.Lock()
        db.sql("CREATE TABLE business (transaction uuid PRIMARY KEY)")

    def write(self, writer: int) -> None:
        dice, numbers = random.Random(writer), defaultdict(int)
        connection = None
        while not self.stopping.is_set():
            if self.held:
                self.stopping.wait(0.01)
                continue
            try:
                if connection is None or connection.closed:
                    connection = self.db.connect(autocommit=False, options=self.options)
                self._transaction(connection, writer, dice, numbers)
                self.stopping.wait(self.pause)  # a long outage must not build up more events than a test can wait for
            except psycopg.OperationalError:  # the server was lost
                connection = None
                self.stopping.wait(0.2)
        if connection:
            connection.close()

    def _transaction(self, connection: psycopg.Connection, writer: int, dice: random.Random, numbers: dict) -> None:
        name, transaction = str(uuid.uuid4()), Transaction(asynchronous=self.asynchronous > 0 and dice.random() < self.asynchronous)
        with self._lock:
            self.transactions[name] = transaction
        if transaction.asynchronous:
            connection.execute("SET LOCAL synchronous_commit = off")
        connection.execute("INSERT INTO business VALUES (%s)", [name])
        for _ in range(dice.randint(1, 4)):
            key = f"{writer}-{dice.randrange(self.keys)}"
            numbers[key] += 1
            [(event,)] = connection.execute(
                "SELECT outbox.enqueue(%s, %s::text, 'order.changed', %s::jsonb)::text",
                [self.aggregate, key, json.dumps({"key": key, "n": numbers[key], "transaction": name})]).fetchall()
            transaction.events.append((event, key, numbers[key]))
        if dice.random() < 0.2:
            connection.rollback()
            return
        connection.commit()
        with self._lock:
            self.acknowledged.add(name)

    @property
    def committed(self) -> int:
        return len(self.acknowledged)

    def expected(self) -> set[str]:
        """The ids of all events of committed transactions; call it after stop()."""
        committed = {str(row[0]) for row in self.db.sql("SELECT transaction FROM business")}
        return {event for name in committed for event, _, _ in self.transactions[name].events}

    def check(self, deliveries: Iterable[tuple[str, dict]], max_duplicates: int) -> None:
        """`deliveries`: event id and payload, for each key in order of arrival."""
        expected = self.expected()
        truth = {event: (key, n) for t in self.transactions.values() for event, key, n in t.events}
        first: dict[str, list[int]] = defaultdict(list)
        seen: set[str] = set()
        duplicates = 0
        for event, payload in deliveries:
            assert event in expected, f"a phantom: {event} {payload}"
            assert truth[event] == (payload["key"], payload["n"]), "another event's id"
            if event in seen:
                duplicates += 1
            else:
                seen.add(event)
                first[payload["key"]].append(payload["n"])
        assert seen == expected, f"{len(expected - seen)} of {len(expected)} lost"
        for key, numbers in first.items():
            assert numbers == sorted(numbers), f"out of order: {key}"
        assert len(expected) < sum(len(t.events) for t in self.transactions.values()), "nothing was rolled back"
        assert duplicates <= max_duplicates, f"{duplicates} duplicates"
