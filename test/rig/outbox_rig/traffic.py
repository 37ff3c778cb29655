"""Applications that write during a fault or a change, and the check of what arrived."""

import json
import random
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field

import psycopg

from .consumer import Record
from .database import Database
from .receiver import Delivery
from .wait import wait_until
from .writers import Writers

Number = tuple[str, int]  # an event's key, and its number within the key


def check(written: dict[Number, str | None], arrived: Iterable[tuple[str, Number | None]], unordered: Container[str] = ()) -> int:
    """No event is lost, none was never written, each has its own id, and the first arrivals of each key are in order, except those of
    `unordered` keys. `written`: the ids, None where only the outbox knows them. `arrived`: with the ids, for each key in order. Returns the
    number of duplicates."""
    ids, seen, duplicates = dict(written), {}, 0
    last: dict[str, int] = {}
    for event, number in arrived:
        assert number in written, f"a phantom: {number}, event {event}"
        assert ids[number] in (None, event), f"another event's id: {number} with that of {event}, not {ids[number]}"
        ids[number] = event
        if number in seen:
            duplicates += 1
            continue
        seen[number] = event
        key, n = number
        assert n > last.get(key, -1) or key in unordered, f"out of order: {key}, {n} after {last[key]}"
        last[key] = n
    lost = sorted(written.keys() - seen)
    assert not lost, f"{len(lost)} of {len(written)} lost: {lost[:20]}"
    assert len(set(seen.values())) == len(seen), "another event's id: two events had the same"
    return duplicates


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

    def check(self, arrived: Iterable[Record | Delivery], max_duplicates: int) -> None:
        """`arrived`: for each key in the order of arrival. Call it after stop()."""
        committed, written = self.expected(), [event for t in self.transactions.values() for event in t.events]
        assert len(committed) < len(written), "nothing was rolled back"
        payloads = ((each.id, json.loads(each.value) if isinstance(each, Record) else each.json()["data"]) for each in arrived)
        again = check({(key, n): event for event, key, n in written if event in committed},
                      ((event, (payload["key"], payload["n"])) for event, payload in payloads))
        assert again <= max_duplicates, f"{again} duplicates"

    def drain(self, timeout: float = 60) -> None:
        self.db.wait_empty(timeout)


class Applications(Writers):
    """Writers that know nothing about the change. They run one transaction after another on one of `keys`, and
    number the events of each key. Some roll back, some take longer. `insert(cursor, key, number)` writes to the old
    table. They are no Traffic: the old table tells no ids, and a row that they lock numbers the keys that they share."""

    def __init__(self, db: Database, keys: list[str], insert: Callable[[psycopg.Cursor, str, int], None], writers: int = 4):
        super().__init__(writers)
        self._db, self._keys, self._insert = db, keys, insert
        self.longest = 0.0  # seconds that each INSERT took
        db.sql("CREATE TABLE IF NOT EXISTS aggregates (key text PRIMARY KEY, number int NOT NULL)")
        db.sql("GRANT SELECT, UPDATE ON aggregates TO app")
        for key in keys:
            db.sql("INSERT INTO aggregates VALUES (%s, 0)", key)

    def write(self, number: int) -> None:
        dice = random.Random(number)
        with self._db.pg.connect(self._db.name, user="app", autocommit=False) as connection:
            while not self.stopping.is_set():
                self._transaction(connection, dice)

    def _transaction(self, connection: psycopg.Connection, dice: random.Random) -> None:
        key = dice.choice(self._keys)
        cursor = connection.cursor()
        cursor.execute("UPDATE aggregates SET number = number + 1 WHERE key = %s RETURNING number", (key,))
        number = cursor.fetchone()[0]
        started = time.monotonic()
        self._insert(cursor, key, number)
        self.longest = max(self.longest, time.monotonic() - started)
        if dice.random() < 0.02:
            self.stopping.wait(0.3)
        if dice.random() < 0.1:
            connection.rollback()
        else:
            connection.commit()
        self.stopping.wait(0.01)

    def written(self) -> dict[str, int]:
        """The number of the last event of each key."""
        return dict(self._db.sql("SELECT key, number FROM aggregates WHERE number > 0"))

    def more(self, count: int) -> None:
        """Waits until this many more events are committed."""
        before = sum(self.written().values())
        wait_until(lambda: self.errors or sum(self.written().values()) >= before + count, 60, "the applications to write")
