"""What the tests of docs/migration.md share: its steps, and applications that go on while it is followed."""

import random
import re
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable

import psycopg
from outbox_rig import ROOT, wait_until
from outbox_rig.consumer import Consumer, Record
from outbox_rig.database import Database
from outbox_rig.paths import pg_config
from outbox_rig.writers import Writers


class Guide:
    """The SQL of docs/migration.md by the names of its steps, with our names in place of the guide's."""

    def __init__(self, db: Database, names: dict[str, str]):
        self._db = db
        text = (ROOT / "docs/migration.md").read_text()
        for name, ours in names.items():
            assert name in text
            text = text.replace(name, ours)
        self._steps: dict[str, str] = dict(re.findall(r"<!-- step: (.+?) -->\n```sql\n(.*?)```", text, re.DOTALL))

    def follow(self, step: str) -> None:
        """As a person would, in psql."""
        done = subprocess.run([pg_config("bindir") / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", self._db.pg.dsn(self._db.name)],
                              input=self._steps[step], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def says_no(self, step: str) -> bool:
        return self._db.value(self._steps[step]) is False

    def ask(self, step: str) -> None:
        """Until the answer is true."""
        wait_until(lambda: self._db.value(self._steps[step]), 30, lambda: f'"{step}"; events: ' + str(self._db.sql(
            "SELECT status, sink, held_by, attempts, last_error, count(*), min(partition_key) FROM outbox.events GROUP BY 1, 2, 3, 4, 5")))


class Applications(Writers):
    """Writers that know nothing of the move: a transaction after the other on one of `keys`, whose events they number. Some
    roll back, some take their time. `insert(cursor, key, number)` is what they do with the old table."""

    def __init__(self, db: Database, keys: list[str], insert: Callable[[psycopg.Cursor, str, int], None], writers: int = 4):
        super().__init__(writers)
        self._db, self._keys, self._insert = db, keys, insert
        self.longest = 0.0  # seconds that an INSERT took
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
        """The number of each key's last event."""
        return dict(self._db.sql("SELECT key, number FROM aggregates WHERE number > 0"))

    def more(self, count: int) -> None:
        """Waits until that many more events have been committed."""
        before = sum(self.written().values())
        wait_until(lambda: self.errors or sum(self.written().values()) >= before + count, 60, "the applications to write")


class Arrived:
    """What a consumer got, while it gets it."""

    def __init__(self, consumer: Consumer, number: Callable[[Record], int]):
        self._consumer, self._number = consumer, number
        self.records: list[Record] = []

    def until(self, written: dict[str, int], timeout: float = 30) -> None:
        """Until the last event of each key is there; a little longer, for what should not be."""
        last: dict[str, int] = defaultdict(int)

        def enough(got: list[Record]) -> bool:
            for record in got[len(last_seen):]:
                last_seen.append(record)
                last[record.key] = max(last[record.key], self._number(record))
            return all(last[key] >= number for key, number in written.items())

        last_seen: list[Record] = []
        try:
            self.records += self._consumer.take_until(enough, timeout, f"the last of each key's events: {written}")
        except TimeoutError:
            raise AssertionError(f"the last events of some keys are lost: {[(key, last[key], number) for key, number in written.items() if last[key] < number]}") from None
        self.records += self._consumer.quiet(1)

    def check(self, written: dict[str, int], unordered: set[str] = set()) -> None:
        """Each key's events once, and in order, but for some keys'."""
        got = defaultdict(list)
        for record in self.records:
            got[record.key].append(self._number(record))
        for key, number in written.items():
            wanted = list(range(1, number + 1))
            assert set(got[key]) == set(wanted), f"lost: key {key}, {sorted(set(wanted) - set(got[key]))}"
            assert len(got[key]) == len(wanted), f"twice: key {key}, {sorted(n for n in set(got[key]) if got[key].count(n) > 1)}"
            assert got[key] == wanted or key in unordered, f"out of order: key {key}, {[(a, b) for a, b in zip(got[key], got[key][1:]) if b < a]}"
        ids = [record.id for record in self.records]
        assert len(ids) == len(set(ids))
