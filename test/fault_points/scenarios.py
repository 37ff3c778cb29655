"""What users, operators and peers do in a case, so that the server comes to its fault points. At any of these lines
the server may be killed: each statement is repeated until the server has accepted it, and each wait is for something
that must come true in spite of one fault."""

import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
from books import Books
from outbox_rig import Kafka, Receiver, wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import HANG, OK, SECRET, Delivery, Mode, status

PATIENCE_S = 45
RETRY = {"retry": "50ms..500ms", "max_attempts": "12"}


class Case:
    """One fault in one scenario: a database of its own, two sinks that take every event, and the books."""

    def __init__(self, db: Database, kafka: Kafka, receiver: Receiver):
        self.db, self.kafka, self.receiver, self.books = db, kafka, receiver, Books()
        receiver.mode = OK

    # ---- statements that survive the fault -----------------------------------------------------------------------

    def sql(self, query: str, *parameters, done: type[psycopg.Error] | tuple = ()) -> list[tuple]:
        """Until the server accepts it. `done`: the error that says that an earlier try was committed."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.db.sql(query, *parameters)
            except done:
                return []
            except psycopg.Error as e:
                self.db.disconnect()
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{query}: {e}") from e
                time.sleep(0.05)

    def value(self, query: str, *parameters):
        return self.sql(query, *parameters)[0][0]

    def until(self, query: str, what: str) -> None:
        """Until the query says true."""
        wait_until(lambda: self.value(query), PATIENCE_S, what, 0.05)

    def set(self, setting: str, value: str) -> None:
        self.sql(f"ALTER SYSTEM SET {setting} = '{value}'")
        self.sql("SELECT pg_reload_conf()")

    def server(self, name: str, wrapper: str = "outbox_webhook", mapping: dict[str, str] = {}, **options: str) -> None:
        self.sql(f"CREATE SERVER {name} FOREIGN DATA WRAPPER {wrapper} OPTIONS ({listed(options)})", done=psycopg.errors.DuplicateObject)
        if mapping:
            self.sql(f"CREATE USER MAPPING FOR PUBLIC SERVER {name} OPTIONS ({listed(mapping)})", done=psycopg.errors.DuplicateObject)

    def create(self) -> None:
        name = self.db.name
        with_admin(self.db, f"CREATE DATABASE {name}", psycopg.errors.DuplicateDatabase)
        self.sql("CREATE TABLE ledger (id uuid)", done=psycopg.errors.DuplicateTable)
        self.sql("CREATE EXTENSION outbox", done=psycopg.errors.DuplicateObject)

    def sinks(self, **options: str) -> None:
        self.server("kafka", "outbox_kafka", bootstrap_servers=self.kafka.bootstrap, aggregates="Fault", **RETRY)
        self.server("crm", mapping={"secret": SECRET}, **(self.webhook() | options))

    def webhook(self, aggregates: str = "Fault") -> dict[str, str]:
        return {"url": self.receiver.url, "allow_http": "true", "allow_networks": "127.0.0.0/8", "timeout": "30s", "aggregates": aggregates} | RETRY

    # ---- events --------------------------------------------------------------------------------------------------

    def write(self, transactions: int = 9, keys: tuple[str, ...] = ("a", "b", "c")) -> list[str]:
        """Every third transaction is rolled back; two events each."""
        ids = []
        for i in range(transactions):
            ids += self.write_one(keys[i % len(keys)], 2, i % 3 != 2)
        return ids

    def write_one(self, key: str, events: int = 1, commit: bool = True, **more) -> list[str]:
        """A transaction that fails is not repeated: the ledger tells whether it was committed."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            connection = None
            try:
                connection = self.db.connect()
                return self.books.write(connection, key, events, commit, **more)
            except psycopg.Error:
                if connection is not None:
                    return []
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            finally:
                if connection is not None:
                    connection.close()

    def drained(self) -> None:
        self.until("SELECT NOT EXISTS (SELECT FROM outbox.events_pending) AND (SELECT bool_and(in_flight = 0) FROM outbox.sinks)", "no event to be pending or in flight")

    def requests(self, n: int = 1) -> None:
        """Until requests hang, or an event is pending no more because the fault has let it pass."""
        wait_until(lambda: self.receiver.open_requests >= n, PATIENCE_S, "a request")

    def release(self) -> None:
        self.receiver.mode = OK
        self.receiver.release()


def listed(options: dict[str, str]) -> str:
    return ", ".join(f"{name} '{value}'" for name, value in options.items())


def with_admin(db: Database, statement: str, done: type[psycopg.Error]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with db.pg.connect() as admin:
                admin.execute(statement)
                return
        except done:
            return
        except psycopg.Error:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


# ---- scenarios -----------------------------------------------------------------------------------------------------


def deliver(case: Case) -> None:
    """One of the transactions is prepared."""
    case.write()
    case.write_one("prepared", 2, end=f"PREPARE TRANSACTION '{case.db.name}'")
    case.sql(f"COMMIT PREPARED '{case.db.name}'", done=psycopg.errors.UndefinedObject)


def keep(case: Case) -> None:
    """Delivered events are kept as SENT."""
    case.sql("ALTER SERVER crm OPTIONS (ADD retention '1d')", done=psycopg.errors.DuplicateObject)
    ids = case.write()
    case.drained()
    not_kept = case.value("SELECT count(*) FROM ledger AS l WHERE l.id = ANY (%s::uuid[]) AND NOT EXISTS"
                          " (SELECT FROM outbox.events AS e WHERE e.id = l.id AND e.sink = 'crm' AND e.status = 'SENT')", ids)
    assert not not_kept, f"{not_kept} delivered events were not kept"


def retry(case: Case) -> None:
    """The first event of a key fails twice, so the key is blocked and drains afterwards."""
    tries: Counter[str] = Counter()

    def answer(delivery: Delivery) -> Mode:
        body = delivery.json()["data"]
        tries[delivery.id] += 1
        return status(422) if body["key"] == "failing" and body["n"] % 3 == 1 and tries[delivery.id] <= 2 else OK

    case.receiver.mode = answer
    case.write(keys=("failing", "b"))
    case.write_one("failing", 6)
    case.drained()
    case.write(3, keys=("failing", "b"))


def dead(case: Case) -> None:
    """A dead letter that blocks its key, until it is redriven."""
    case.sql("ALTER SERVER crm OPTIONS (SET max_attempts '2', ADD on_dead_letter 'block')", done=psycopg.errors.DuplicateObject)
    case.receiver.mode = lambda delivery: status(422) if delivery.json()["data"]["key"] == "dead" else OK
    for _ in range(2):
        case.write_one("dead", 3)
    case.write_one("other", 3)
    case.until("SELECT EXISTS (SELECT FROM outbox.events_failed) OR NOT EXISTS (SELECT FROM outbox.events_pending)", "a dead letter")
    case.receiver.mode = OK
    redrive_all(case)


def redrive_all(case: Case) -> None:
    def empty() -> bool:
        case.sql("SELECT outbox.redrive(id, sink) FROM outbox.events_failed")
        return not case.value("SELECT EXISTS (SELECT FROM outbox.events_failed)") and not case.value("SELECT EXISTS (SELECT FROM outbox.events_pending)")
    wait_until(empty, PATIENCE_S, "the dead letters to be delivered", 0.3)


def pause(case: Case) -> None:
    """With requests in flight and without; resumed before and after they have ended."""
    case.receiver.mode = HANG
    case.write(4)
    case.requests()
    case.sql("SELECT outbox.pause('crm')")
    case.write(2)
    case.sql("SELECT outbox.resume('crm')")
    time.sleep(0.3)
    case.sql("SELECT outbox.pause('crm')")
    case.release()
    case.until("SELECT in_flight = 0 FROM outbox.sinks WHERE name = 'crm'", "the requests to end")
    case.write(2)
    case.sql("SELECT outbox.resume('crm')")
    case.drained()
    case.sql("SELECT outbox.pause('crm')")
    time.sleep(0.3)
    case.sql("SELECT outbox.resume('crm')")


def disable(case: Case) -> None:
    """A 410 disables the sink; resume() ends that."""
    case.receiver.mode = status(410)
    case.write(2)
    case.until("SELECT EXISTS (SELECT FROM outbox.stopped_sinks)", "the sink to be disabled")
    case.receiver.mode = OK
    case.sql("SELECT outbox.resume('crm')")


def alter(case: Case) -> None:
    """ALTER SERVER while events are in flight, and without; with a pause in between."""
    case.write(3)
    case.sql("ALTER SERVER crm OPTIONS (SET timeout '29s')")
    case.write(3)
    case.drained()
    case.receiver.mode = HANG
    case.write(3)
    case.requests()
    case.sql("ALTER SERVER crm OPTIONS (SET timeout '30s')")
    time.sleep(0.2)
    case.sql("SELECT outbox.pause('crm')")
    time.sleep(0.2)
    case.release()
    case.sql("SELECT outbox.resume('crm')")
    case.drained()
    case.sql("ALTER SERVER crm OPTIONS (SET timeout '29s'); SELECT outbox.pause('crm')")
    time.sleep(0.3)
    case.sql("SELECT outbox.resume('crm')")


def drop(case: Case) -> None:
    """A third sink is dropped in each of its states, and made again under its name."""
    options = case.webhook("Third")
    gone, there = psycopg.errors.UndefinedObject, "SELECT NOT EXISTS (SELECT FROM outbox.events_pending WHERE sink = 'third')"

    def make(**more: str) -> None:
        case.server("third", mapping={"secret": SECRET}, **(options | more))

    def drop_it() -> None:
        case.sql("DROP SERVER third CASCADE", done=gone)
        time.sleep(0.2)

    def enqueue() -> None:
        case.sql("SELECT outbox.enqueue('Third', 'x'::text, 'changed', '{\"key\": \"third\", \"n\": 1}'::jsonb)")

    make()
    drop_it()  # open
    make()
    enqueue()
    case.until(there, "the third sink's event")
    case.receiver.mode = HANG
    enqueue()
    case.requests()
    drop_it()  # dropping
    make()
    time.sleep(0.2)
    drop_it()  # closing
    case.release()
    time.sleep(0.3)
    make()
    case.until(there, "the third sink's event")
    case.sql("BEGIN; DROP SERVER third CASCADE; COMMIT", done=gone)
    make()
    case.sql("SELECT outbox.pause('third')")
    time.sleep(0.3)
    drop_it()  # stopped
    case.sql("DELETE FROM outbox.stopped_sinks WHERE sink = 'third'")
    del options["url"]
    make()
    time.sleep(0.3)
    case.sql("SELECT outbox.pause('third')")  # misconfigured
    time.sleep(0.3)
    case.sql("SELECT outbox.resume('third')")
    time.sleep(0.3)
    drop_it()
    make()
    time.sleep(0.3)
    case.sql(f"ALTER SERVER third OPTIONS (ADD url '{case.receiver.url}')", done=psycopg.errors.DuplicateObject)
    enqueue()
    case.until(there, "the third sink's event")
    drop_it()
    options["url"] = case.receiver.url
    enqueue()  # to be routed
    case.receiver.mode = lambda delivery: status(422) if delivery.json()["data"]["key"] == "third" else OK
    make()
    time.sleep(0.5)
    drop_it()  # while its key is blocked
    case.receiver.mode = HANG
    make()
    enqueue()
    case.requests()
    case.sql("SELECT outbox.pause('third')")
    drop_it()  # stopping
    case.release()
    case.sql("DELETE FROM outbox.stopped_sinks WHERE sink = 'third'")
    case.sql("BEGIN; DELETE FROM outbox.events WHERE sink = 'third'; COMMIT")
    case.sql(f"BEGIN; CREATE SERVER third FOREIGN DATA WRAPPER outbox_webhook OPTIONS ({listed(case.webhook('Third'))}); SELECT outbox.pause('third'); COMMIT",
             done=psycopg.errors.DuplicateObject)  # stopped before it was opened
    time.sleep(0.3)
    drop_it()
    case.sql("DELETE FROM outbox.stopped_sinks WHERE sink = 'third'")
    case.write(3)


def unopened(case: Case) -> None:
    """While events are being routed no sink is opened: a session holds one that a new sink takes."""
    name = "SELECT outbox.enqueue('Third', 'x'::text, 'changed', '{\"key\": \"third\", \"n\": 1}'::jsonb)"
    gone = psycopg.errors.UndefinedObject
    case.sql(name)
    with holding(case, "LOCK TABLE outbox_internal.rescan_queue IN SHARE UPDATE EXCLUSIVE MODE"):
        case.server("third", mapping={"secret": SECRET}, **case.webhook("Third"))
        time.sleep(0.2)
        case.sql("ALTER SERVER crm OPTIONS (SET timeout '29s')")
        time.sleep(0.2)
        case.sql("SELECT outbox.pause('crm')")
        time.sleep(0.2)
        case.sql("SELECT outbox.resume('crm')")
        case.sql("DROP SERVER third CASCADE", done=gone)
        case.write(3)
        time.sleep(0.3)
    case.sql("DELETE FROM outbox.events WHERE aggregate_type = 'Third'")


def misconfigured(case: Case) -> None:
    """A sink cannot be opened until an operator has put a file in its place."""
    path = f"/tmp/{case.db.name}.pem"
    case.server("third", "outbox_kafka", bootstrap_servers=case.kafka.bootstrap, aggregates="Third", security_protocol="ssl", ssl_ca_location=path)
    case.write(3)
    case.until("SELECT state = 'misconfigured' FROM outbox.sinks WHERE name = 'third'", "the sink to be misconfigured")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "/dev/null", "-out", path, "-days", "1", "-subj", "/CN=faults"],
                   check=True, capture_output=True)
    try:
        case.until("SELECT state <> 'misconfigured' FROM outbox.sinks WHERE name = 'third'", "the sink to be opened")
    finally:
        Path(path).unlink()
    case.sql("DROP SERVER third CASCADE", done=psycopg.errors.UndefinedObject)


def workers(case: Case) -> None:
    """Shards change hands while events are in flight and keys are blocked."""
    tries: Counter[str] = Counter()

    def answer(delivery: Delivery):
        tries[delivery.id] += 1
        return status(422) if delivery.json()["data"]["n"] % 7 == 1 and tries[delivery.id] <= 2 else OK

    case.receiver.mode = answer
    case.write(6, keys=tuple("abcdefghi"))
    case.receiver.mode = HANG
    case.write(6, keys=tuple("abcdefghi"))
    case.requests()
    case.set("outbox.workers", "3")
    case.until("SELECT count(*) = 3 FROM outbox.workers WHERE database = current_database()", "three workers")
    time.sleep(0.3)
    case.release()
    case.write(6, keys=tuple("abcdefghi"))
    case.drained()
    case.receiver.mode = HANG
    case.write(6, keys=tuple("abcdefghi"))
    case.requests()
    case.set("outbox.workers", "1")
    time.sleep(0.5)
    case.release()
    case.drained()
    case.until("SELECT count(*) = 1 FROM outbox.workers WHERE database = current_database()", "one worker")
    for number in ("3", "1", "2", "4", "1"):
        case.set("outbox.workers", number)
        case.write(2)
    case.until("SELECT count(*) = 1 FROM outbox.workers WHERE database = current_database()", "one worker")
    case.write(3)


def idle(case: Case) -> None:
    """The worker leaves, and a commit brings it back."""
    none = "SELECT count(*) = 0 FROM outbox.workers WHERE database = current_database()"
    case.write(3)
    case.drained()
    case.set("outbox.worker_idle_timeout", "300ms")
    case.until(none, "the worker to leave")
    case.write(3)
    case.drained()
    case.until(none, "the worker to leave again")
    for i in range(8):  # also while it leaves
        case.write_one("abc"[i % 3])
        time.sleep(0.25 + i % 4 / 20)
    case.drained()
    case.until(none, "the worker to leave again")
    case.sql("SELECT outbox_internal.announce()")
    case.set("outbox.workers", "2")
    case.receiver.mode = HANG
    case.write_one("a")
    case.requests()
    time.sleep(0.5)
    case.write(6, keys=tuple("abcdef"))
    case.release()
    case.set("outbox.workers", "1")
    case.set("outbox.worker_idle_timeout", "60s")


def made_again(case: Case) -> None:
    """DROP EXTENSION and CREATE EXTENSION in one transaction."""
    case.write(3)
    case.drained()
    case.sql("BEGIN; DROP EXTENSION outbox CASCADE; CREATE EXTENSION outbox; COMMIT")
    case.sinks()
    case.write()


def dropped(case: Case) -> None:
    """The extension is dropped and created, and its version is another one for a while."""
    case.write(3)
    case.drained()
    case.sql("DROP EXTENSION outbox CASCADE", done=psycopg.errors.UndefinedObject)
    wait_until(lambda: not case.value("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'outbox worker' AND datname = current_database())"),
               PATIENCE_S, "the worker to leave", 0.1)
    case.sql("CREATE EXTENSION outbox", done=psycopg.errors.DuplicateObject)
    case.sinks()
    case.write(3)
    case.drained()
    version = case.value("SELECT extversion FROM pg_extension WHERE extname = 'outbox'")
    case.sql("UPDATE pg_extension SET extversion = '0.0.1' WHERE extname = 'outbox'; ALTER TABLE outbox_internal.rescan_queue SET (fillfactor = 99)")
    wait_until(lambda: not case.value("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'outbox worker' AND datname = current_database())"),
               PATIENCE_S, "the worker to leave", 0.1)
    case.sql(f"UPDATE pg_extension SET extversion = '{version}' WHERE extname = 'outbox'; SELECT outbox_internal.announce()")
    case.write()


def database(case: Case) -> None:
    """Other databases are made, renamed and dropped, with the extension and without; this one is written to."""
    other = Database(case.db.pg, case.db.name + "x")
    for extension in (True, False):
        case.sql(f"CREATE DATABASE {other.name}", done=psycopg.errors.DuplicateDatabase)
        if extension:
            Case(other, case.kafka, case.receiver).sql("CREATE EXTENSION outbox", done=psycopg.errors.DuplicateObject)
        time.sleep(0.5)
        other.disconnect()
        case.sql(f"DROP DATABASE IF EXISTS {other.name} WITH (FORCE)")
        case.write(3)


def locked(case: Case) -> None:
    """Other sessions hold rows while they are to be claimed and while they are to be recorded."""
    case.sql("SELECT outbox.pause('crm'), outbox.pause('kafka')")
    case.write(6)
    with holding(case, "SELECT FROM outbox.events_pending WHERE aggregate_id IN ('a', 'b') FOR UPDATE"):
        case.sql("SELECT outbox.resume('crm'), outbox.resume('kafka')")
        case.write(6)
        time.sleep(0.7)
    case.drained()
    case.receiver.mode = HANG
    case.write(6)
    case.requests()
    with holding(case, "SELECT FROM outbox.events_pending WHERE aggregate_id IN ('a', 'b') FOR UPDATE"):
        case.release()
        case.write(3)
        time.sleep(0.7)
    case.drained()
    case.sql("SELECT outbox.pause('crm')")
    case.write_one("first of its key", 5)
    with holding(case, "SELECT FROM outbox.events_pending WHERE aggregate_id = 'first of its key' ORDER BY position LIMIT 1 FOR UPDATE"):
        case.sql("SELECT outbox.resume('crm')")
        case.write(3)
        time.sleep(0.7)


class holding:
    """A session that holds what a statement locks; the server may end it."""

    def __init__(self, case: Case, statement: str):
        self.case, self.statement = case, statement

    def __enter__(self) -> None:
        self.session = None
        try:
            self.session = self.case.db.connect(autocommit=False)
            self.session.execute(self.statement)
        except psycopg.Error:
            pass

    def __exit__(self, *_) -> None:
        if self.session:
            self.session.close()


def gone(case: Case) -> None:
    """A user deletes rows of events that are in flight."""
    case.receiver.mode = HANG
    ids = case.write_one("gone", 1) + case.write_one("stays", 2)
    case.requests()
    case.books.may_miss |= {("crm", id) for id in ids}
    case.sql("DELETE FROM outbox.events WHERE sink = 'crm' AND aggregate_id = 'gone'")
    case.release()
    case.write(3)


def outage(case: Case) -> None:
    """The endpoint is away, and comes back."""
    case.write(2)
    case.drained()
    case.receiver.stop()
    case.write(9, keys=tuple("abcdef"))
    time.sleep(2)
    case.write(3)
    case.receiver.start()
    case.drained()
    case.receiver.mode = status(503)
    case.write(9, keys=tuple("abcdef"))
    time.sleep(1.5)
    case.receiver.mode = OK


def failing_record(case: Case) -> None:
    """A user's trigger refuses that a delivery is recorded."""
    case.sql("""CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused by a fault test'; END $$""")
    case.sql("CREATE OR REPLACE TRIGGER refuse AFTER DELETE ON outbox.events_pending FOR EACH ROW WHEN (old.aggregate_id = 'refused' AND old.sink = 'crm') EXECUTE FUNCTION refuse()")
    case.receiver.mode = HANG
    case.write_one("refused", 2)
    ids = case.write_one("gone", 1)
    case.requests()
    case.books.may_miss |= {("crm", id) for id in ids}
    case.sql("DELETE FROM outbox.events WHERE sink = 'crm' AND aggregate_id = 'gone'")
    case.release()
    case.write(3)
    time.sleep(1)
    case.sql("DROP TRIGGER IF EXISTS refuse ON outbox.events_pending")
    case.drained()
    case.sql("CREATE OR REPLACE TRIGGER refuse BEFORE UPDATE OF blocked_by ON outbox.events_pending FOR EACH ROW WHEN (new.blocked_by <> 0 AND old.blocked_by IS NULL)"
             " EXECUTE FUNCTION refuse()")  # claims fail that mark rows behind a failing one
    case.receiver.mode = lambda delivery: status(500) if delivery.json()["data"]["key"] == "failing" else OK
    case.write_one("failing", 1)
    time.sleep(0.3)
    case.write_one("failing", 3)
    case.write(3)
    time.sleep(0.5)
    case.receiver.mode = OK
    case.sql("DROP TRIGGER IF EXISTS refuse ON outbox.events_pending")


def restart(case: Case) -> None:
    """The worker is ended by a user, and the settings let it start again."""
    case.receiver.mode = HANG
    case.write(3)
    case.requests()
    case.sql("SELECT pg_terminate_backend(pid) FROM outbox.workers WHERE database = current_database()")
    time.sleep(0.2)
    case.release()
    case.write(3)
    case.until("SELECT count(*) = 1 FROM outbox.workers WHERE database = current_database()", "the next worker")
    case.set("outbox.enabled", "off")
    case.write(3)
    case.until("SELECT count(*) = 0 FROM outbox.workers WHERE database = current_database()", "the worker to leave")
    case.set("outbox.enabled", "on")
    with holding(case, "LOCK TABLE outbox.stopped_sinks"):  # the next worker cannot read its sinks at once
        case.sql("SELECT pg_terminate_backend(pid) FROM outbox.workers WHERE database = current_database()")
        time.sleep(2.5)


def scarce(case: Case) -> None:
    """Another database needs a worker while this one has all slots."""
    case.set("outbox.workers", "30")
    case.receiver.mode = HANG
    case.write(6, keys=tuple("abcdefghijklm"))
    case.requests()
    other = Case(Database(case.db.pg, case.db.name + "x"), case.kafka, case.receiver)
    other.create()
    other.until("SELECT count(*) > 0 FROM outbox.workers WHERE database = current_database()", "a worker of the other database")
    case.release()
    case.write(6, keys=tuple("abcdefghijklm"))
    case.set("outbox.workers", "1")
    other.db.disconnect()
    case.sql(f"DROP DATABASE IF EXISTS {other.db.name} WITH (FORCE)")


def unreadable(case: Case) -> None:
    """The payload of an event is damaged, and mended by a user."""
    case.sql("CREATE EXTENSION IF NOT EXISTS pg_surgery")
    case.sql("ALTER TABLE outbox.events_pending ALTER payload SET STORAGE EXTERNAL")
    case.sql("SELECT outbox.pause('crm'), outbox.pause('kafka')")
    case.write_one("damaged", 1, padding=5000)
    case.write_one("damaged", 2)
    toast = case.value("SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'outbox.events_pending'::regclass")
    case.sql(f"SELECT heap_force_kill('{toast}', coalesce((SELECT array_agg(ctid) FROM {toast}), '{{}}'))")
    case.sql("SELECT outbox.resume('crm'), outbox.resume('kafka')")
    case.write(3)
    time.sleep(1)
    damaged = [(key, n, id) for id, (key, n) in case.books.written.items() if key == "damaged"]

    def mended() -> bool:
        """A worker that had read the damaged row may record its failure later, and then waits for a minute."""
        for each in damaged:
            case.sql("UPDATE outbox.events SET payload = jsonb_build_object('key', %s::text, 'n', %s::int), available_at = NULL WHERE id = %s AND status = 'PENDING'", *each)
        return not case.value("SELECT EXISTS (SELECT FROM outbox.events_pending WHERE aggregate_id = 'damaged')")

    wait_until(mended, PATIENCE_S, "the mended events to be delivered", 0.5)


@dataclass(frozen=True)
class Scenario:
    name: str
    act: Callable[[Case], None]
    duplicates: int = 0  # that the scenario itself causes


SCENARIOS = {scenario.name: scenario for scenario in (
    Scenario("deliver", deliver), Scenario("keep", keep), Scenario("retry", retry), Scenario("dead", dead), Scenario("pause", pause), Scenario("disable", disable),
    Scenario("alter", alter, 10), Scenario("drop", drop), Scenario("workers", workers, 10), Scenario("idle", idle), Scenario("made_again", made_again),
    Scenario("dropped", dropped), Scenario("database", database), Scenario("locked", locked), Scenario("gone", gone), Scenario("outage", outage, 10),
    Scenario("failing_record", failing_record), Scenario("restart", restart, 10),
    Scenario("unopened", unopened), Scenario("misconfigured", misconfigured), Scenario("scarce", scarce, 10), Scenario("unreadable", unreadable))}
