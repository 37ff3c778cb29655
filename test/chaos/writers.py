"""The applications: each writer has keys of its own, and some that it shares with the others under a row lock. They do not use
outbox_rig.traffic, because a seeded plan draws each of their transactions, and the history must know an event before it is sent."""

import threading
import time
import uuid
from typing import Protocol

import psycopg
from history import Event, History, Transaction
from plan import Plan

WRITERS = 5
OWN_KEYS = 4
SHARED_KEYS = [f"shared-{n}" for n in range(5)]
RECONNECT_S = 60
BULK = 40


def all_keys() -> list[str]:
    return SHARED_KEYS + own_keys()


def own_keys() -> list[str]:
    return [f"{writer}-{n}" for writer in range(WRITERS) for n in range(OWN_KEYS)]


class Database(Protocol):
    def connect(self) -> psycopg.Connection: ...


class Open:
    """A transaction that ends later: open on a connection of its own, or prepared."""

    def __init__(self, transaction: Transaction, keys: list[str], due: float, connection: psycopg.Connection | None):
        self.transaction, self.keys, self.due, self.connection = transaction, keys, due, connection


class Writer(threading.Thread):
    def __init__(self, db: Database, plan: Plan, history: History, number: int, alone: threading.Event | None = None):
        """`alone`: while it is set, no transaction stays open."""
        super().__init__(name=f"writer {number}", daemon=True)
        self._alone = alone or threading.Event()
        self.error: Exception | None = None
        self._db, self._plan, self._history, self._number = db, plan, history, number
        self._dice = plan.dice(self.name)
        self._ending = threading.Event()
        self._connection: psycopg.Connection | None = None
        self._keys = [f"{number}-{n}" for n in range(OWN_KEYS)]
        self._open: list[Open] = []
        self._current: Transaction | None = None  # the transaction that began last
        self._count = 0
        self._clock = 0.0  # how long it has been open, in units that do not depend on the machine's speed

    def finish(self) -> None:
        """Ends the open transactions and the thread."""
        self._ending.set()
        self.join()
        if self.error:
            raise self.error

    def run(self) -> None:
        busy_until = time.monotonic() + self._plan.seconds
        try:
            while not self._ending.is_set():
                self._attempt(self._turn)
                pause = self._dice.uniform(0, 0.02)
                self._clock += pause
                # Limits the backlog: a long recovery must not produce more than the drain can take.
                self._ending.wait(pause if time.monotonic() < busy_until else pause * 20)
            while self._open:
                self._attempt(lambda: self._end(self._open[0]))
            for _ in range(self._plan.backlog):
                self._attempt(self._bulk)
        except Exception as e:
            self.error = e
        finally:
            for connection in [self._connection, *(o.connection for o in self._open)]:
                if connection:
                    connection.close()

    # ---- connections -------------------------------------------------------------------------------------------

    def _connect(self) -> psycopg.Connection:
        until = threading.Event()
        for _ in range(RECONNECT_S * 20):
            try:
                connection = self._db.connect()
                connection.execute("SET statement_timeout = '120s'")  # PostgreSQL's own timeouts depend on the clock that the test sets
                return connection
            except psycopg.OperationalError:
                until.wait(0.05)
        raise TimeoutError(f"the server took no connection for {RECONNECT_S} s")

    def _attempt(self, what) -> None:
        """Runs one piece of work. After a lost connection, the ledger tells what was committed."""
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        try:
            what()
        except psycopg.errors.QueryCanceled:
            raise  # canceled by the timeout: no statement here may take that long
        except (psycopg.OperationalError, psycopg.InterfaceError):
            self._connection.close()
        if self._current and self._current.outcome == "open" and all(o.transaction is not self._current for o in self._open):
            self._current.end("rolled back")  # the connection broke before COMMIT

    # ---- pieces ------------------------------------------------------------------------------------------------

    def _begin(self, kind: str, connection: psycopg.Connection | None = None) -> Transaction:
        self._count += 1
        asynchronous = self._dice.random() < self._plan.asynchronous
        transaction = self._current = self._history.begin(f"{self._number}.{self._count}", kind, asynchronous)
        if kind != "steps":
            connection = connection or self._connection
            connection.execute("BEGIN")
            if asynchronous:
                connection.execute("SET LOCAL synchronous_commit = off")
        return transaction

    def _event(self, transaction: Transaction, key: str, undone: bool = False) -> str:
        """Records an event before it is sent, so that no unknown event can arrive."""
        event = Event(str(uuid.UUID(int=self._dice.getrandbits(128), version=4)), key, transaction, undone)
        self._history.add(event)
        return event.id

    def _emit(self, transaction: Transaction, key: str, undone: bool = False, connection=None) -> None:
        (connection or self._connection).execute(
            "SELECT chaos.emit(%s, %s, %s)", [self._plan.cycle, key, self._event(transaction, key, undone)])

    def _end_with(self, transaction: Transaction, command: str, connection: psycopg.Connection | None = None) -> None:
        transaction.end("unknown")  # until the response is here
        done = (connection or self._connection).execute(command).statusmessage
        transaction.end({"COMMIT": "committed", "COMMIT PREPARED": "committed", "PREPARE TRANSACTION": "prepared"}
                        .get(done, "rolled back"))

    def _free_keys(self, many: int, shared: bool = True) -> list[str]:
        """Locks keys in one order for all writers, which avoids deadlocks."""
        busy = {key for o in self._open for key in o.keys}
        keys = [key for key in self._keys if key not in busy] + (SHARED_KEYS if shared else [])
        return sorted(self._dice.sample(keys, min(many, len(keys))))

    # ---- kinds of transactions ---------------------------------------------------------------------------------

    def _turn(self) -> None:
        due = [o for o in self._open if o.due <= self._clock or self._alone.is_set()]
        if due:
            return self._end(due[0])
        kind = self._dice.choices([*self._plan.kinds], [*self._plan.kinds.values()])[0]
        getattr(self, f"_{kind}")()

    def _plain(self) -> None:
        t = self._begin("plain")
        for key in self._free_keys(self._dice.randint(1, 3)):
            self._emit(t, key)
        self._end_with(t, "COMMIT")

    def _rolled_back(self) -> None:
        t = self._begin("rolled back")
        for key in self._free_keys(self._dice.randint(1, 3)):
            self._emit(t, key)
        self._end_with(t, "ROLLBACK")

    def _savepoints(self) -> None:
        t = self._begin("savepoints")
        for key in self._free_keys(3):
            undone = self._dice.random() < 0.5
            self._connection.execute("SAVEPOINT s")
            self._emit(t, key, undone)
            if self._dice.random() < 0.5:
                self._connection.execute("SAVEPOINT inner_one")
                self._emit(t, key, undone)
                self._connection.execute("RELEASE inner_one")
            self._connection.execute("ROLLBACK TO s" if undone else "RELEASE s")
        self._end_with(t, "COMMIT")

    def _exception(self) -> None:
        t = self._begin("exception block")
        [key] = self._free_keys(1)
        self._connection.execute("SELECT chaos.emit_after_error(%s, %s, %s, %s)",
                                 [self._plan.cycle, key, self._event(t, key, undone=True), self._event(t, key)])
        self._end_with(t, "COMMIT")

    def _steps(self) -> None:
        t = self._begin("steps")
        [key] = self._free_keys(1)
        ids = [self._event(t, key, undone=i % 2 == 1) for i in range(4)]
        t.asynchronous = False
        t.end("unknown")
        self._connection.execute("CALL chaos.emit_in_steps(%s, %s, %s::uuid[])", [self._plan.cycle, key, ids])
        t.end("committed")

    def _bulk(self) -> None:
        t = self._begin("bulk")
        for key in self._free_keys(4):
            ids = [self._event(t, key) for _ in range(BULK // 4)]
            self._connection.execute("SELECT chaos.emit_many(%s, %s, %s::uuid[])", [self._plan.cycle, key, ids])
        self._end_with(t, "COMMIT")

    # ---- with the functions of triggers.sql --------------------------------------------------------------------

    def _of_own_key(self, kind: str, *calls: str) -> None:
        """`calls`: each with the cycle, a key that no other writer has, and an event's id."""
        for key in self._free_keys(1, shared=False):
            t = self._begin(kind)
            for call in calls:
                self._connection.execute(f"SELECT {call}", [self._plan.cycle, key, self._event(t, key)])
            self._end_with(t, "COMMIT")

    def _large(self) -> None:
        self._of_own_key("large", "chaos.emit_large(%s, %s, %s)")

    def _echoing(self) -> None:
        self._of_own_key("echoing", "chaos.emit(%s, %s, %s, 'chaos.echoes')")

    def _ahead(self) -> None:
        """The application's clock is ahead of the server's, and tells "now" of an event. Another one of the key follows."""
        self._of_own_key("ahead", "chaos.emit(%s, %s, %s, available_at => clock_timestamp() + '50 ms')", "chaos.emit(%s, %s, %s)")

    def _freeing(self) -> None:
        for key in self._free_keys(1, shared=False):
            t = self._begin("freeing")
            id = self._event(t, key)
            self._connection.execute("SELECT chaos.emit_freeing(%s, %s, %s, %s)", [self._plan.cycle, key, id, self._event(t, f"sleeps-{id}")])
            self._end_with(t, "COMMIT")

    def _every(self) -> None:
        """Of one writer's keys, and the shared ones."""
        t = self._begin("every")
        for key in self._free_keys(OWN_KEYS + len(SHARED_KEYS)):
            self._emit(t, key)
        self._end_with(t, "COMMIT")

    # ---- transactions that stay open ---------------------------------------------------------------------------

    def _late(self) -> None:
        """Enqueues now and commits later, after transactions that began later."""
        keys = self._free_keys(self._dice.randint(1, 2), shared=False)
        if not keys or self._alone.is_set():
            return self._plain()
        connection = self._connect()
        t = self._begin("late", connection)
        self._open.append(Open(t, keys, self._clock + self._dice.uniform(0.05, 0.6), connection))
        for key in keys:
            self._emit(t, key, connection=connection)

    def _prepared(self) -> None:
        keys = self._free_keys(self._dice.randint(1, 2), shared=False)
        if not keys or self._alone.is_set():
            return self._plain()
        t = self._begin("prepared")
        for key in keys:
            self._emit(t, key)
        self._open.append(Open(t, keys, self._clock + self._dice.uniform(0.05, 0.6), None))
        self._end_with(t, f"PREPARE TRANSACTION 'chaos-{self._plan.cycle}-{t.name}'")

    def _end(self, o: Open) -> None:
        """Ends the transaction and writes to the same keys again at once: the order of both must be kept."""
        keep = self._dice.random() < 0.8
        if o.connection:
            self._open.remove(o)
            try:
                self._end_with(o.transaction, "COMMIT" if keep else "ROLLBACK", o.connection)
            except (psycopg.OperationalError, psycopg.InterfaceError):
                pass  # the server was lost
            o.connection.close()
        else:
            gid = f"chaos-{self._plan.cycle}-{o.transaction.name}"
            prepared = self._connection.execute("SELECT 1 FROM pg_prepared_xacts WHERE gid = %s", [gid]).fetchone()
            if prepared:
                self._end_with(o.transaction, f"{'COMMIT' if keep else 'ROLLBACK'} PREPARED '{gid}'")
            self._open.remove(o)
        if not self._ending.is_set():
            t = self._begin("after it")
            for key in o.keys:
                self._emit(t, key)
            self._end_with(t, "COMMIT")


class Few(Writer):
    """The transactions that are made while the last fault lasts."""

    def __init__(self, db: Database, plan: Plan, history: History):
        super().__init__(db, plan, history, 0)
        self.name = "few"
        self._dice = plan.dice(self.name)
        self._count = 1_000_000  # transactions have names of their own

    def run(self) -> None:
        try:
            for kind in self._plan.after:
                self._attempt(getattr(self, f"_{kind}"))
        except Exception as e:
            self.error = e
        finally:
            if self._connection:
                self._connection.close()
