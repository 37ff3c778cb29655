"""Applications that keep writing while their outbox is being changed."""

import random
import time
from collections.abc import Callable

import psycopg

from .database import Database
from .wait import wait_until
from .writers import Writers


class Applications(Writers):
    """Writers that know nothing about the change. They run one transaction after another on one of `keys`, and
    number the events of each key. Some roll back, some take longer. `insert(cursor, key, number)` writes to the old
    table."""

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
