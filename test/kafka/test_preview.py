"""outbox.preview() shows before the commit exactly the bytes that arrive."""

import random
import time
from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from outbox_rig import Consumer, wait_until
from outbox_rig.database import Database
from outbox_rig.documents import Documents

EVENTS = 150
PARTITIONS = 4

KAFKA_SINKS = {
    "plain": {},
    "created": {"timestamp": "created_at"},
    "templates": {"topic": "templates.${event_type}.${aggregate_type}", "key": "${aggregate_id}/${header.n}"},
    "partitioned": {"additional_placement": "header.shard:partition, event_type:header:eventType, created_at:header, header.absent:header"},
    "raw": {"format": "raw", "key_format": "json"},
    "connect": {"key_format": "connect_json", "value_format": "connect_json"},
    "string": {"value_format": "json_string", "tombstone_on_empty_payload": "false"},
    "compact": {"value_format": "json_compact", "null_behavior": "ignore"},
    "envelope": {"value_format": "json_compact", "additional_placement": "type:envelope:eventType, header.traceparent:envelope"},
    "cloudevents": {"format": "cloudevents", "source": "/shop/${database}"},
    "structured": {"format": "cloudevents-structured", "additional_placement": "header.n:header:number"},
    "binary_key": {"key": "${header.binary_key}", "key_format": "base64"},
    "bytes": {"value_format": "bytes", "aggregates": "Bytes"},
}
KINDS_OF_BINARY = ["key", "value", "header"]  # parts that sometimes are not text


@dataclass
class Part:
    part: str
    name: str | None
    value: str | None
    bytes: bytes | None


@dataclass
class Run:
    """A corpus of events: the preview of each, and its record."""

    previews: dict[tuple[str, str], list[Part]]  # by sink and event
    records: list = field(default_factory=list)
    after: dict[tuple[str, str], list[Part]] = field(default_factory=dict)  # previews of the delivered rows
    started: float = field(default_factory=time.time)

    def of(self, sink: str) -> dict[str, list[Part]]:
        return {event: parts for (name, event), parts in self.previews.items() if name == sink}


class Events:
    """Rows as applications write them, with unusual values."""

    TEXTS = ["", "42", "Zoë", "日本語", "a b", '"quoted"', "\\", "😀" * 20, "x" * 300, "{}"]
    HEADERS = {"traceparent": '"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"', "empty": '""', "n": "7.50", "yes": "true",
               "id": '"not the event\'s"', "Content-Type": '"text/plain"', "x-unicode": '"Zoë 😀"', "long": '"' + "y" * 1000 + '"'}

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.documents = Documents(seed)

    KAFKA_HEADERS = {"Ünïcode": '"1"', "a b": '"2"', "tab": '"\\t"', "shard": "3", "binary_key": '"AP8K"',
                     "__value_schema_id": '{"base64": "AQIDAP8="}'}

    def row(self, aggregate_type: str, more_headers: dict[str, str], kinds: str = "bytes json json tombstone") -> dict:
        pick = self.random.choice
        key = pick(self.TEXTS + [None])
        names = [name for name in self.HEADERS | more_headers if self.random.random() < 0.4]
        row = {
            "aggregate_type": aggregate_type, "aggregate_id": key, "event_type": pick(["order.paid", "order_moved", "x"]),
            "partition_key": pick([key, None, pick(self.TEXTS)]),
            "headers": pick([None, "{" + ", ".join(f'"{name}": {(self.HEADERS | more_headers)[name]}' for name in names) + "}"]),
            "created_at": pick(["2024-02-29T12:34:56.789123Z", "1999-12-31T23:59:59.9999Z", "1969-07-20T20:17:00Z", "2100-01-01Z", None]),
            "payload": None, "payload_bytes": None, "content_type": None,
        }
        kind = pick(kinds.split())
        if kind == "bytes":
            row["payload_bytes"] = self.random.randbytes(pick([0, 1, 5, 1000]))
            row["content_type"] = pick([None, "application/avro"])
        elif kind == "json":
            row["payload"] = self.documents.value(3)
        return row


def enqueue(connection, rows: list[dict]) -> None:
    connection.cursor().executemany(
        "INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, partition_key, headers, created_at, payload, payload_bytes, content_type) "
        "VALUES (%(aggregate_type)s, %(aggregate_id)s, %(event_type)s, %(partition_key)s, %(headers)s, %(created_at)s, %(payload)s::jsonb, "
        "%(payload_bytes)s, %(content_type)s)", rows)


def previews(connection) -> dict[tuple[str, str], list[Part]]:
    """The previews of all events, in the order of the parts."""
    found = defaultdict(list)
    for event, sink, *part in connection.execute(
            "SELECT e.id::text, p.* FROM (SELECT DISTINCT id FROM outbox.events) AS e, outbox.preview(e.id) AS p"):
        found[sink, event].append(Part(*part))
    return dict(found)


@pytest.fixture(scope="module")
def run(pg, kafka):
    """The previews are taken before any event can have been sent."""
    db = Database(pg, "preview").create()
    for name, options in KAFKA_SINKS.items():
        tombstones = {} if options.get("format", "").startswith("cloudevents") else {"tombstone_on_empty_payload": "true"}
        db.kafka_sink(name, kafka, **({"topic": name, "aggregates": "Preview*", "retention": "1d"} | tombstones | options))
    events = Events(seed=6)
    with db.connect(autocommit=False) as connection:
        enqueue(connection, [events.row(f"Preview{n % 2}", Events.KAFKA_HEADERS) for n in range(EVENTS)])
        enqueue(connection, [events.row("Bytes", Events.KAFKA_HEADERS, "bytes tombstone") for n in range(EVENTS // 3)])
        run = Run(previews(connection))
        topics = {parts[0].value for parts in run.previews.values()}
        kafka.create_topics(sorted(topics), PARTITIONS)
        connection.commit()
    wait_until(lambda: db.pending() == 0, 30, "the rows to be recorded as sent")
    with Consumer(kafka.bootstrap, sorted(topics)) as consumer:
        run.records = consumer.take(len(run.previews))
    with db.connect() as connection:
        run.after = previews(connection)
    yield run
    db.drop()


def as_sent(parts: list[Part]) -> tuple:
    """Topic, key, headers and value of a record, according to its preview."""
    one = {part.part: part for part in parts}
    return one["topic"].bytes.decode(), one["key"].bytes, [(p.name, p.bytes) for p in parts if p.part == "header"], one["value"].bytes


@pytest.mark.parametrize("sink", KAFKA_SINKS)
def test_a_record(run, sink):
    """Each preview has its record, including the timestamp and an explicit partition."""
    shown = list(run.of(sink).values())
    topics = {parts[0].value for parts in shown}
    records = [record for record in run.records if record.topic in topics]
    assert len(shown) == len(records) == (EVENTS // 3 if sink == "bytes" else EVENTS)
    for parts in shown:
        matching = [r for r in records if (r.topic, r.key_bytes, r.headers, r.value) == as_sent(parts)]
        assert matching, f"nothing like this came: {parts}"
        one = {part.part: part for part in parts}
        timestamp, partition = one["timestamp"].value, one.get("partition")
        if timestamp.startswith("("):
            matching = [r for r in matching if run.started - 1 <= r.timestamp / 1000 <= time.time()]
        else:
            matching = [r for r in matching if r.timestamp == int(timestamp)]
        if partition:
            matching = [r for r in matching if r.partition == int(partition.value)]
        assert matching, f"with another timestamp or partition: {parts}"
        records.remove(matching[0])
    assert not records


def test_the_corpus_has_its_odd_corners(run):
    """Otherwise the comparison would prove little."""
    parts = [part for shown in run.previews.values() for part in shown]

    def some(of: str, what) -> bool:
        return any(part.part == of and what(part) for part in parts)

    for of in ("key", "value"):
        assert some(of, lambda p: p.bytes is None and p.value is None) and some(of, lambda p: p.bytes == b"")
    for of in KINDS_OF_BINARY:
        assert some(of, lambda p: p.bytes and p.value is None), of
    assert some("partition", lambda p: p.value == "3")
    assert some("timestamp", lambda p: p.value.isdigit()) and some("timestamp", lambda p: p.value.startswith("("))


def test_what_was_sent_can_still_be_shown(run):
    assert run.after == run.previews


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_in_another_encoding(pg, encoding):
    """Records are UTF-8 whatever the database's encoding: `bytes` are the record's, `value` is what the database can
    represent."""
    db = Database(pg, f"preview_{encoding.lower()}")
    with pg.connect() as admin:
        admin.execute(f"CREATE DATABASE {db.name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    db.sql("SET client_encoding = 'UTF8'")
    db.sql("CREATE EXTENSION outbox")
    db.sql("CREATE SERVER main FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1')")
    event = db.value("SELECT outbox.enqueue_bytes('Order', %s, 'order.paid', %s, 'text/plain')", "Zoë", "10 €".encode())
    parts = {part: (value, data) for part, value, data in db.sql("SELECT part, value, bytes FROM outbox.preview(%s)", event)}
    db.drop()
    assert parts["key"] == ("Zoë", "Zoë".encode())
    assert parts["value"] == ("10 €" if encoding == "SQL_ASCII" else None, "10 €".encode())
