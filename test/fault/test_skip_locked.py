"""Beside other sessions' row locks, the worker claims exactly the rows that SELECT ... FOR UPDATE SKIP LOCKED returns
at the same moment.

The worker checks for locks and takes none. So the test stops it between reading the rows and checking their locks:
it waits for a lock on the index of the table's TOAST, which it needs for the payload of the last row. Other sessions
take locks before that and while the worker is stopped; then they pause, PostgreSQL is asked, and the worker
continues."""

import random
import uuid
from collections.abc import Callable

import psycopg
import pytest
from outbox_rig import seed, wait_until

pytestmark = pytest.mark.slow

MODES = ["KEY SHARE", "SHARE", "NO KEY UPDATE", "UPDATE"]
ROUNDS, MOST_ROUNDS = 4, 12


class Lockers:
    """Sessions with open transactions, and prepared transactions."""

    def __init__(self, db, chance: random.Random):
        self.db, self.chance = db, chance
        self.idle: list[psycopg.Connection] = []
        self.busy: list[psycopg.Connection] = []
        self.prepared: list[str] = []

    def get_ready(self, n: int) -> None:
        """Connects in advance: there is no time while the worker is stopped."""
        self.idle += [self.db.connect(autocommit=False) for _ in range(n - len(self.idle))]

    def session(self) -> psycopg.Connection:
        session = self.idle.pop() if self.idle else self.db.connect(autocommit=False)
        self.busy.append(session)
        return session

    def end(self, session: psycopg.Connection, commit: bool) -> None:
        (session.commit if commit else session.rollback)()
        self.busy.remove(session)
        self.idle.append(session)

    def prepare(self, session: psycopg.Connection) -> None:
        gid = f"{self.db.name} {uuid.uuid4()}"
        session.execute(f"PREPARE TRANSACTION '{gid}'")
        self.end(session, commit=True)
        self.prepared.append(gid)

    def end_prepared(self, gid: str, commit: bool) -> None:
        self.db.sql(f"{'COMMIT' if commit else 'ROLLBACK'} PREPARED '{gid}'")
        self.prepared.remove(gid)

    def end_all(self) -> None:
        for session in list(self.busy):
            self.end(session, self.chance.random() < 0.5)
        for gid in list(self.prepared):
            self.end_prepared(gid, self.chance.random() < 0.5)

    def close(self) -> None:
        self.end_all()
        for session in self.idle:
            session.close()


def lock(session: psycopg.Connection, row: int, mode: str) -> None:
    session.execute(f"SELECT FROM outbox.events_pending WHERE position = %s FOR {mode} NOWAIT", [row])


CHANGES = {
    "update": "UPDATE outbox.events_pending SET seq = coalesce(seq, 0) + 1 WHERE position = %s",
    "update of a key": "UPDATE outbox.events_pending SET id = gen_random_uuid() WHERE position = %s",
    "move": "UPDATE outbox.events SET status = 'FAILED' WHERE position = %s",
    "delete": "DELETE FROM outbox.events WHERE position = %s",
}


def change(session: psycopg.Connection, row: int, name: str) -> None:
    session.execute(CHANGES[name], [row])


# ---- each is done to a row of its own ------------------------------------------------------------------------------


def held(what: str) -> Callable[[Lockers, int], None]:
    return lambda lockers, row: (change if what in CHANGES else lock)(lockers.session(), row, what)


def ended(what: str, commit: bool) -> Callable[[Lockers, int], None]:
    def act(lockers: Lockers, row: int) -> None:
        session = lockers.session()
        (change if what in CHANGES else lock)(session, row, what)
        lockers.end(session, commit)
    return act


def prepared(what: str, then: bool | None = None) -> Callable[[Lockers, int], None]:
    def act(lockers: Lockers, row: int) -> None:
        session = lockers.session()
        (change if what in CHANGES else lock)(session, row, what)
        lockers.prepare(session)
        if then is not None:
            lockers.end_prepared(lockers.prepared[-1], then)
    return act


def shared(first_ends: bool | None) -> Callable[[Lockers, int], None]:
    """Locked by two sessions: a multixact. One of them may end."""
    def act(lockers: Lockers, row: int) -> None:
        sessions = [lockers.session(), lockers.session()]
        for session, mode in zip(sessions, lockers.chance.choice([("SHARE", "SHARE"), ("KEY SHARE", "NO KEY UPDATE"), ("KEY SHARE", "SHARE")])):
            lock(session, row, mode)
        if first_ends is not None:
            lockers.end(sessions[0], first_ends)
    return act


def shared_by_those_who_left(lockers: Lockers, row: int) -> None:
    """A multixact whose members have all ended, one of them a prepared transaction."""
    sessions = [lockers.session() for _ in range(3)]
    for session in sessions:
        lock(session, row, "SHARE")
    lockers.prepare(sessions[0])
    lockers.end(sessions[1], commit=True)
    lockers.end(sessions[2], commit=False)
    lockers.end_prepared(lockers.prepared[-1], commit=True)


def in_savepoint(what: str, keep: bool, before: str | None = None) -> Callable[[Lockers, int], None]:
    """The lock of a subtransaction is kept or rolled back; `before`, taken by its parent, stays."""
    def act(lockers: Lockers, row: int) -> None:
        session = lockers.session()
        if before:
            lock(session, row, before)
        session.execute("SAVEPOINT s")
        (change if what in CHANGES else lock)(session, row, what)
        session.execute("RELEASE s" if keep else "ROLLBACK TO s")
    return act


ACTS: list[Callable[[Lockers, int], None]] = [
    lambda lockers, row: None,
    *(held(mode) for mode in MODES), *(ended(mode, commit) for mode in MODES for commit in (True, False)),
    *(held(name) for name in CHANGES), *(ended(name, commit) for name in CHANGES for commit in (True, False)),
    *(prepared(what) for what in ("KEY SHARE", "UPDATE", "update", "move")),
    *(prepared(what, then) for what in ("SHARE", "update") for then in (True, False)),
    shared(None), shared(True), shared(False), shared_by_those_who_left,
    *(in_savepoint(what, keep) for what in ("KEY SHARE", "UPDATE", "update") for keep in (True, False)),
    *(in_savepoint(what, keep, before) for what, before in (("UPDATE", "SHARE"), ("update", "KEY SHARE"), ("update", "SHARE")) for keep in (True, False)),
]


def act_at_random(lockers: Lockers, rows: list[int], times: int = 6) -> None:
    """Sessions, old and new, lock or change rows that are free for them, with or without subtransactions, and end or
    stay."""
    chance = lockers.chance
    for _ in range(times):
        session = chance.choice(lockers.busy) if lockers.busy and chance.random() < 0.5 else lockers.session()
        undone = chance.random() < 0.3
        if undone:
            session.execute("SAVEPOINT s")
        for row in chance.sample(rows, 3):
            mode = chance.choice(MODES)
            free = session.execute(f"SELECT FROM outbox.events_pending WHERE position = %s FOR {mode} SKIP LOCKED", [row]).rowcount
            if free and mode in ("NO KEY UPDATE", "UPDATE") and chance.random() < 0.5:
                change(session, row, "update")
        if undone:
            session.execute("ROLLBACK TO s")
        match chance.random():
            case share if share < 0.2:
                lockers.end(session, commit=chance.random() < 0.5)
            case share if share < 0.3 and len(lockers.prepared) < 8:
                lockers.prepare(session)


# ---- the test ------------------------------------------------------------------------------------------------------


@pytest.fixture
def chance():
    return random.Random(seed())


@pytest.fixture
def lockers(db, chance):
    lockers = Lockers(db, chance)
    yield lockers
    lockers.close()


class Sink:
    """A Kafka sink whose events all use one partition, so arrival order is sending order."""

    def __init__(self, db, kafka, consume, aggregate):
        self.db, self.aggregate, self.received = db, aggregate, []
        db.kafka_sink("crm", kafka, partition="0")
        db.sql("ALTER TABLE outbox.events_pending ALTER payload SET STORAGE EXTERNAL")
        self.consumer = consume(f"outbox.event.{aggregate}")
        self.flush()

    def enqueue(self, n: int, payload: str = "1") -> list[int]:
        before = self.db.value("SELECT last_value FROM outbox.events_position")
        self.db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) SELECT %s, gen_random_uuid()::text, 'changed', to_jsonb(%s::text)"
                    " FROM generate_series(1, %s)", self.aggregate, payload, n)
        return [row[0] for row in self.db.sql("SELECT position FROM outbox.events_pending WHERE position > %s ORDER BY position", before)]

    def flush(self) -> set[str]:
        """The keys that arrived since the last call, up to an event that is enqueued now."""
        last = str(uuid.uuid4())
        self.db.enqueue(self.aggregate, last)
        arrived: list[str] = []

        def came() -> bool:
            while record := self.consumer.poll(0.05):
                arrived.append(record.key)
            return last in arrived
        wait_until(came, 60, "the last event")
        assert len(arrived) == len(set(arrived)), "an event was sent twice"
        return set(arrived) - {last}

    def pause(self) -> None:
        self.db.sql("SELECT outbox.pause('crm')")
        wait_until(lambda: self.db.sink("state, in_flight") == ("paused", 0), 30, "the pause")


def waits_since(db) -> str | None:
    """Since when the worker has waited for the index of the table's TOAST, which only the test uses otherwise."""
    return db.value("SELECT l.waitstart::text FROM pg_locks AS l JOIN outbox.workers AS w USING (pid) WHERE NOT l.granted AND l.locktype = 'relation'"
                    " AND w.database = current_database()")


def free_rows(db, rows: list[int]) -> set[int]:
    """The rows that SKIP LOCKED returns. The locks that this takes are released afterwards."""
    with db.connect(autocommit=False) as session:
        found = session.execute("SELECT position FROM outbox.events_pending WHERE position = ANY (%s) FOR UPDATE SKIP LOCKED", [rows]).fetchall()
        session.rollback()
    return {row[0] for row in found}


def one_round(db, sink: Sink, lockers: Lockers, ask_before: bool, late: int) -> bool:
    """True if the worker was stopped between its read and its check of the locks while some of them were taken: those of
    `late` rows, and some at random."""
    chance = lockers.chance
    sink.pause()
    rows = sink.enqueue(len(ACTS) + 20)
    [last] = sink.enqueue(1, "x" * 9000)
    keys = dict(db.sql("SELECT position, aggregate_id FROM outbox.events_pending WHERE position = ANY (%s)", [*rows, last]))
    acts = list(zip(chance.sample(ACTS, len(ACTS)), rows))
    others = rows[len(ACTS):]
    now = chance.sample(acts, len(acts) - late)
    toast = db.value("SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'outbox.events_pending'::regclass")

    for act, row in now:
        act(lockers, row)
    act_at_random(lockers, others)
    lockers.get_ready(20)
    with db.connect(autocommit=False) as gate:
        gate.execute(f"REINDEX TABLE {toast}")
        db.sql("SELECT outbox.resume('crm')")
        since = wait_until(lambda: waits_since(db), 60, "the worker in the middle of its round")
        for act, row in acts:
            if (act, row) not in now:
                act(lockers, row)
        act_at_random(lockers, others, min(late, 6))
        expected = free_rows(db, [*rows, last]) if ask_before else None
        stood = waits_since(db) == since
        gate.commit()

    pending = "SELECT e.position FROM outbox.events_pending AS e WHERE e.position = ANY (%s)"
    waiting = f"{pending} AND outbox_internal.row_holders(e.ctid) = '{{}}'"
    wait_until(lambda: not db.sql(waiting, [*rows, last]), 30, lambda: f"rows that nobody holds to be sent: {db.sql(waiting, [*rows, last])}")
    arrived = sink.flush()
    left = {row[0] for row in db.sql(pending, [*rows, last])}
    assert arrived <= set(keys.values())
    claimed = {row for row, key in keys.items() if key in arrived}
    assert not claimed & left, "sent, although somebody holds the row"
    assert not free_rows(db, list(left)), "not sent, although nobody holds the row"
    assert expected is None or claimed == expected
    assert last in claimed and len(left) > len(ACTS) / 3
    lockers.end_all()
    wait_until(lambda: not db.sql(pending, [*rows, last]), 30, "the rest")
    sink.flush()
    return stood


def test_the_worker_claims_what_skip_locked_would(db, kafka, consume, aggregate, lockers):
    """In every second round PostgreSQL is also asked before: its row locks leave traces in the rows. On a busy machine
    the worker may stop waiting, after 900 ms, before the locks are taken: then fewer are taken in the next round."""
    sink = Sink(db, kafka, consume, aggregate)
    stood, late = 0, len(ACTS) // 3
    for n in range(MOST_ROUNDS):
        stands = one_round(db, sink, lockers, ask_before=n % 2 == 0, late=late)
        stood += stands
        late = late if stands else max(late // 2, 1)
        if n + 1 >= ROUNDS and stood > 0:
            break
    assert stood > 0, "the worker never waited long enough"
