"""docs/migration.md step by step, with running applications: no lost event, no duplicate, every key in order."""

import json
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from outbox_rig import wait_until
from outbox_rig.guide import Guide
from outbox_rig.consumer import Consumer, Record
from outbox_rig.database import Database
from outbox_rig.traffic import Applications, Number, check

pytestmark = pytest.mark.slow


def number(record: Record) -> int:
    return json.loads(record.value)["n"]


class Arrived:
    """The events that a consumer receives. Each arrives once, and the keys are in order."""

    def __init__(self, consumer: Consumer):
        self._consumer = consumer
        self.records: list[Record] = []

    def check(self, written: dict[str, int], unordered: tuple[str, ...] = ()) -> None:
        """Waits for the events of each key up to the last, and a little longer, for events that should not arrive."""
        wanted = {(key, n): None for key, last in written.items() for n in range(1, last + 1)}
        with suppress(TimeoutError):  # the check says what is lost
            wait_until(lambda: self._seen(self._consumer.quiet(0.3)) >= wanted.keys(), 30)
        self._seen(self._consumer.quiet(1))
        assert check(wanted, ((record.id, (record.key, number(record))) for record in self.records), unordered) == 0, "events came twice"

    def _seen(self, records: list[Record]) -> set[Number]:
        self.records += records
        return {(record.key, number(record)) for record in self.records}


def app_role(db: Database, grants: str) -> None:
    db.sql("DO $$ BEGIN CREATE ROLE app LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    db.sql(grants)


# ---- from Debezium ---------------------------------------------------------------------------------------------------


@pytest.fixture
def moving(debezium):
    """The database with the old table of Debezium's documentation."""
    db = Database(debezium.pg, "moving")
    yield db
    db.disconnect()
    db.sql("DROP SERVER IF EXISTS main CASCADE")
    db.sql("DROP EXTENSION outbox")
    for kind in ("FUNCTION public.outbox_hand_over() CASCADE", "FUNCTION public.lock_when_free", "TABLE public.aggregates"):
        db.sql(f"DROP {kind}")
    db.sql("TRUNCATE public.outbox")


def insert_for_debezium(aggregate: str):
    def insert(cursor, key: str, n: int) -> None:
        cursor.execute("INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES (%s, %s, 'order.changed', %s) RETURNING id",
                       (aggregate, key, json.dumps({"n": n})))
        assert cursor.rowcount == 1
        if n % 2:  # half of the applications delete their rows at once
            cursor.execute("DELETE FROM outbox WHERE id = %s", cursor.fetchone())
            assert cursor.rowcount == 1
    return insert


HEARTBEAT = {"heartbeat.interval.ms": "300"}
KEYS = [f"key{i}" for i in range(8)]


TAKE_BACK = "ALTER PUBLICATION dbz_publication ADD TABLE public.outbox;"


@pytest.mark.parametrize("publication", ["dbz_publication", "dbz_all"])
def test_from_debezium_and_back(debezium, moving, kafka, consume, aggregate, publication):
    db = moving
    all_tables = publication == "dbz_all"
    slot = f"and_back_{publication}"
    guide = Guide(db, {"'debezium'": f"'{slot}'", "localhost:9092": kafka.bootstrap}
                  | ({TAKE_BACK: "ALTER TABLE public.outbox SET LOGGED;"} if all_tables else {}))
    app_role(db, "GRANT SELECT, INSERT, DELETE ON outbox TO app")
    if all_tables:
        db.sql("ALTER PUBLICATION dbz_publication DROP TABLE outbox; CREATE PUBLICATION dbz_all FOR ALL TABLES")
    kafka.create_topic(f"outbox.event.{aggregate}", 6)
    debezium.add({slot: HEARTBEAT | {"publication.name": publication}})
    arrived = Arrived(consume(f"outbox.event.{aggregate}"))
    with Applications(db, KEYS, insert_for_debezium(aggregate)) as applications:
        applications.more(100)
        guide.follow("prepare")
        guide.follow("debezium prepare")
        debezium.pause(slot)  # so that it has a backlog
        applications.more(50)
        guide.follow("debezium cut, all tables" if all_tables else "debezium cut")
        applications.more(50)
        assert guide.says_no("debezium drained")
        debezium.resume(slot)
        guide.ask("debezium drained")
        guide.follow("debezium open")
        applications.more(100)

        debezium.pause(slot)
        guide.follow("debezium back")
        applications.more(100)
        guide.ask("back, drained")
        guide.follow("back, close")
        debezium.resume(slot)
        applications.more(100)
    written = applications.written()
    arrived.check(written)
    debezium.remove(slot)
    if all_tables:
        db.sql("DROP PUBLICATION dbz_all; ALTER PUBLICATION dbz_publication ADD TABLE outbox")


def test_from_debezium_for_good(debezium, moving, kafka, consume, aggregate):
    db = moving
    app_role(db, "GRANT SELECT, INSERT, DELETE ON outbox TO app")
    kafka.create_topic(f"outbox.event.{aggregate}", 6)
    debezium.add({"for_good": HEARTBEAT})
    guide = Guide(db, {"'debezium'": "'for_good'", "localhost:9092": kafka.bootstrap})
    guide.follow("prepare")
    guide.follow("debezium prepare")
    guide.follow("debezium cut")
    guide.ask("debezium drained")
    guide.follow("debezium open")
    debezium.delete("for_good")
    guide.follow("debezium retire")
    assert db.sql("SELECT FROM pg_replication_slots") == []

    arrived = Arrived(consume(f"outbox.event.{aggregate}"))

    def insert(cursor, key: str, n: int) -> None:
        cursor.execute("INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES (%s, %s, 'order.changed', %s) RETURNING id",
                       (aggregate, key, json.dumps({"n": n})))
        assert cursor.rowcount == 1 and cursor.fetchone()[0]

    with Applications(db, KEYS, insert) as applications:
        applications.more(50)
        guide.follow("debezium view")
        stored = db.value("SELECT count(*) FROM outbox_old")
        applications.more(50)
    arrived.check(applications.written())
    assert db.value("SELECT count(*) FROM outbox_old") == stored  # no row is stored twice any more
    assert db.sql("DELETE FROM outbox RETURNING id") == []
    db.sql("DROP VIEW outbox; DROP FUNCTION outbox_hand_over_view; ALTER TABLE outbox_old RENAME TO outbox")


# ---- from a poller ---------------------------------------------------------------------------------------------------


@contextmanager
def poller(db: Database, kafka, topic: str, kind: str):
    child = subprocess.Popen([sys.executable, str(Path(__file__).parent / "poller.py"), db.pg.dsn(db.name), kafka.bootstrap, topic, kind])
    try:
        yield child
        assert child.poll() is None
    finally:
        child.terminate()  # it finishes the rows that it has taken
        child.wait(20)


TABLES = {
    "status": """CREATE TABLE events_to_send (id bigserial PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload jsonb,
                   status text NOT NULL DEFAULT 'NEW', attempts int NOT NULL DEFAULT 0)""",
    "published_at": """CREATE TABLE events_to_send (id text PRIMARY KEY DEFAULT 'evt_' || md5(random()::text), aggregate_type text, aggregate_id text,
                         event_type text, payload jsonb, created_at timestamptz NOT NULL DEFAULT clock_timestamp(), published_at timestamptz)""",
}


SENT = {"status": "status = 'SENT'", "published_at": "published_at IS NOT NULL"}


@pytest.mark.parametrize("kind", TABLES)
def test_from_a_poller_and_back(db, kafka, consume, aggregate, kind):
    topic = f"orders{aggregate}"
    kafka.create_topic(topic, 6)
    db.sql(TABLES[kind])
    app_role(db, "GRANT SELECT, INSERT ON events_to_send TO app; GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO app")
    arrived = Arrived(consume(topic))
    flaky = kind == "status"  # their first attempts fail: the poller loses only their order

    def insert(cursor, key: str, n: int) -> None:
        cursor.execute("INSERT INTO events_to_send (aggregate_type, aggregate_id, event_type, payload) VALUES (%s, %s, 'order.changed', %s) RETURNING id",
                       (aggregate, key, json.dumps({"n": n, "fails": int(key == "flaky")})))
        assert cursor.rowcount == 1

    guide = Guide(db, {"'orders'": f"'{topic}'", "localhost:9092": kafka.bootstrap})
    suffix = ", published_at" if kind == "published_at" else ""
    with Applications(db, KEYS + ["flaky"] * flaky, insert) as applications:
        with poller(db, kafka, topic, kind) as relay:
            applications.more(100)
            wait_until(lambda: db.value(f"SELECT EXISTS (SELECT FROM events_to_send WHERE {SENT[kind]})"), 60, "the poller's first round")
            for n in range(1, 4) if flaky else ():
                db.sql("INSERT INTO events_to_send (aggregate_type, aggregate_id, event_type, payload) VALUES (%s, 'dead', 'order.changed', %s)",
                       aggregate, json.dumps({"n": n, "fails": 9}))
            guide.follow("prepare")
            guide.follow("poller prepare" + suffix)
            relay.send_signal(signal.SIGUSR1)  # so that it has a backlog
            applications.more(50)
            guide.follow("poller cut")
            applications.more(50)
            assert guide.says_no("poller drained" + suffix)
            relay.send_signal(signal.SIGUSR2)
            guide.ask("poller drained" + suffix)
        if flaky:
            assert db.sql("SELECT status, count(*) FROM events_to_send WHERE aggregate_id = 'dead' GROUP BY 1") == [("ERROR", 3)]
            guide.follow("poller given up")
        guide.follow("poller open")
        applications.more(100)

        guide.follow("poller back")
        applications.more(50)
        guide.ask("back, drained")
        guide.follow("back, close")
        with poller(db, kafka, topic, kind):
            applications.more(50)
            applications.stop()
            written = applications.written() | ({"dead": 3} if flaky else {})
            arrived.check(written, unordered=("flaky",))
    legacy = {str(row[0]) for row in db.sql("SELECT id FROM events_to_send")}
    assert {dict(record.headers).get("legacyId", record.headers[0][1]).decode() for record in arrived.records} == legacy
