"""docs/logical-replication.md with the real Debezium: it reads outbox.events from the WAL and makes the same records as the worker."""

import json

import pytest
from outbox_rig import ROOT, Consumer, Record, wait_until
from outbox_rig.database import Database
from outbox_rig.guide import Guide

# The router makes the records; the speed of the JVM does not matter.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
PAGE = "docs/logical-replication.md"


@pytest.fixture
def read_by_debezium(debezium):
    db = Database(debezium.pg, "cdc")
    db.create()
    yield db
    if "dbz_outbox" in debezium.connectors():
        debezium.delete("dbz_outbox")
    db.sql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 'dbz_outbox'")
    db.sql("DROP OWNED BY debezium_cdc; DROP ROLE debezium_cdc")
    db.drop()


def connector(db: Database) -> dict[str, str]:
    """The page's connector, docs/debezium.json, for our server, with a heartbeat so that the test need not wait."""
    return json.loads((ROOT / "docs/debezium.json").read_text()) | {"database.hostname": "127.0.0.1", "database.port": str(db.pg.port), "database.dbname": db.name,
                                  "database.user": "debezium_cdc", "heartbeat.interval.ms": "300"}


class Topic:
    """The records that arrived, and no others."""

    def __init__(self, db: Database, consumer: Consumer, aggregate: str):
        self._db, self._consumer, self._aggregate = db, consumer, aggregate

    def until_here(self) -> list[Record]:
        """The records since the last call, up to an event that is enqueued now."""
        last = self._db.enqueue(self._aggregate, "last", "last")
        records = self._consumer.take_until(lambda got: got and got[-1].id == last, 120, "the last one")
        return [record for record in records if dict(record.headers)["eventType"] != b"last"]

    def rest(self) -> list[Record]:
        """The records that were not taken yet."""
        records = []
        while not self._consumer.at_end():
            records += self._consumer.quiet(0.1)
        return records


def ids(records: list[Record]) -> list[str]:
    return [record.id for record in records]


def events(db: Database, aggregate: str) -> list[str]:
    """Events written in each way; the ids of those that must arrive."""
    made = [db.enqueue(aggregate, f"key{n % 3}", "order.created", json.dumps({"n": n, "text": "é \"q\" 😀", "none": None, "list": []})) for n in range(20)]
    made += [str(row[0]) for row in db.sql("""
        INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload)
        SELECT %s, 'key' || n %% 3, 'order.changed', to_jsonb(n) FROM generate_series(20, 29) AS n RETURNING id""", aggregate)]
    made += [str(row[0]) for row in db.sql("""
        INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, partition_key, status)
        VALUES (%s, 'key1', 'order.gone', NULL, NULL, NULL), (%s, 'key1', 'order.moved', '"x"', 'of another kind', 'PENDING') RETURNING id""", aggregate, aggregate)]
    with db.connect(autocommit=False) as session:
        session.execute("SELECT outbox.enqueue(%s, 'key0', 'order.never', '{}')", (aggregate,))
        session.rollback()
        session.execute("SAVEPOINT s")
        session.execute("SELECT outbox.enqueue(%s, 'key0', 'order.never', '{}')", (aggregate,))
        session.execute("ROLLBACK TO s")
        made.append(str(session.execute("SELECT outbox.enqueue(%s, 'key0', 'order.kept', '1.50')", (aggregate,)).fetchone()[0]))
        session.commit()
    made.append(db.enqueue(aggregate, "key2", "order.tagged", headers='{"tenant": "acme"}'))
    made.append(str(db.value("SELECT outbox.enqueue_bytes(%s, 'key2', 'order.raw', '\\x00ff', 'application/avro')", aggregate)))
    return made


def less_of(record: Record) -> tuple:
    """The part of our records that Debezium can produce: no tombstone, no bytes, no header of the event's own."""
    lost = record.value in (None, b"\x00\xff")
    return record.key, b"{}" if lost else record.value, [header for header in record.headers if header[0] in ("id", "eventType")]


def test_the_page_is_followed(debezium, read_by_debezium, kafka, consume, aggregate):
    db = read_by_debezium
    guide = Guide(db, {"debezium": "debezium_cdc", "'1 hour'": "'0 s'"}, PAGE)
    kafka.create_topics([f"outbox.event.{aggregate}", f"ours.{aggregate}"], partitions=1)
    guide.follow("cdc server")
    debezium.add_as_it_is(connector(db))
    topic = Topic(db, consume(f"outbox.event.{aggregate}"), aggregate)

    # Committed events arrive in order, and nothing else does.
    made = events(db, aggregate)
    theirs = topic.until_here()
    assert ids(theirs) == made
    assert db.sql("SELECT DISTINCT status, sink FROM outbox.events") == [("PENDING", None)]
    [(slot, active, wal_status, _, behind)] = guide.rows("cdc slot")
    assert (slot, active, wal_status) == ("dbz_outbox", True, "reserved") and behind >= 0
    db.sql("CREATE TABLE other AS SELECT n FROM generate_series(1, 100000) AS n")
    wait_until(lambda: guide.rows("cdc slot")[0][4] < 1_000_000, 60, lambda: guide.rows("cdc slot"))

    assert db.doctor("routes")[0] == "warning"

    # The worker's own records of the same rows are equal. Its writes to the table cause no records.
    db.kafka_sink("main", kafka, topic="ours.${aggregate_type}", additional_placement="type:header:eventType", events="order.*")
    for other, ours in zip(theirs, consume(f"ours.{aggregate}").take(len(made), 60), strict=True):
        assert (other.key, other.value, other.headers) == less_of(ours)
    wait_until(lambda: db.sql("SELECT FROM outbox.events WHERE sink = 'main'") == [], 30, "the worker to record it")
    db.sql("DROP SERVER main CASCADE")
    assert topic.until_here() == []

    # Deleted rows: by the cleaner, and by the application in the transaction that wrote them.
    guide.follow("cdc clean")
    assert db.sql("SELECT FROM outbox.events") == []
    at_once = []
    for _ in range(2):  # its dedup key is free again
        with db.connect(autocommit=False) as session:
            at_once.append(session.execute("SELECT outbox.enqueue(%s, 'key0', 'order.at_once', '{}', dedup_key => 'once')::text", (aggregate,)).fetchone()[0])
            session.execute("DELETE FROM outbox.events WHERE id = %s", (at_once[-1],))
            session.commit()
    assert ids(topic.until_here()) == at_once

    # A publication for everything: updates and deletes are published, and the router drops them.
    db.sql("ALTER PUBLICATION dbz_outbox SET TABLE outbox.events")
    db.sql("ALTER PUBLICATION dbz_outbox SET (publish = 'insert, update, delete, truncate')")
    changed = db.enqueue(aggregate, "key0", "order.changed")
    db.sql("UPDATE outbox.events SET payload = '{}' WHERE id = %s", changed)
    db.sql("DELETE FROM outbox.events")
    assert ids(topic.until_here()) == [changed]
    db.sql("ALTER PUBLICATION dbz_outbox SET (publish = 'insert')")
    db.sql("ALTER PUBLICATION dbz_outbox SET TABLE outbox.events WHERE (status = 'PENDING')")

    # The same events again, with the same ids.
    twice = [db.enqueue(aggregate, "key0", "order.twice", str(n)) for n in range(3)]
    guide.follow("cdc again")
    assert ids(topic.until_here()) == twice * 2

    # The worker takes over: each event arrives in one way, once.
    before = db.enqueue(aggregate, "key0", "order.before")
    guide.follow("cdc cut")
    after = [db.enqueue(aggregate, "key0", "order.after", str(n)) for n in range(3)]
    guide.ask("cdc drained")
    debezium.delete("dbz_outbox")
    assert ids(topic.rest()) == [before]
    db.kafka_sink("main", kafka, topic="ours.${aggregate_type}", additional_placement="type:header:eventType")
    moved = consume(f"ours.{aggregate}").take(len(made) + len(after), 60)
    assert ids(moved[len(made):]) == after
