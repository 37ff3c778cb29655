"""outbox beside the real Debezium with its Outbox Event Router: the same events with the same settings give the same
Kafka records. Differences are listed here per event, and in docs/kafka-reference.md."""

from dataclasses import dataclass
from datetime import datetime, timezone

import pytest
from outbox_rig import ROOT, Consumer, Record
from outbox_rig.database import Database
from outbox_rig.debezium import ROUTER
from router_events import FAILS, ORDER, SAME, TEXT, WILD, Event, compact, events, one_string

# The record is made before the library gets it. Only Debezium's output is compared, so the JVM's start time does not
# matter.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COLUMNS = """n serial, id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid text NOT NULL, type varchar(255) NOT NULL, payload jsonb,
             tenant text, part int, created timestamp, created_at timestamptz, body bytea"""
# Debezium's own header since 3.3, before all others; extended.headers.enabled=false removes it.
CONTEXT = ["__debezium.context.connectorLogicalName", "__debezium.context.taskId", "__debezium.context.connectorName"]
DEFAULT_TOPIC = "outbox.event.{type}"
WITHOUT_CONTEXT = {"extended.headers.enabled": "false"}


def router(**options: str) -> dict[str, str]:
    return {"transforms.outbox." + name.replace("_", "."): value for name, value in options.items()}


def json_converter(which: str, schemas: bool = False) -> dict[str, str]:
    return {f"{which}.converter": "org.apache.kafka.connect.json.JsonConverter", f"{which}.converter.schemas.enable": str(schemas).lower()}


@dataclass(frozen=True)
class SetUp:
    debezium: dict[str, str]
    ours: dict[str, str]
    topic: str = "{name}.{type}"  # every configuration has topics of its own
    routed_by: str = "aggregate_type"
    headers: tuple[str, ...] = ()  # columns of Debezium's table that are headers of our event
    expands: str | None = None  # table.json.payload.null.behavior for expanded payloads
    enveloped: bool = False  # payloads are then in an envelope, with the id
    timestamp: bool = False  # in Debezium's column too
    body: bool = False  # the payload is bytes

    def events(self) -> list[Event]:
        """Creating topics takes time: other aggregate types have topics only with the default settings."""
        return [event for event in EVENTS if (self.topic == DEFAULT_TOPIC or event.aggregate_type == ORDER) and (not self.expands or event.event_type != WILD)]

    def expansion(self, event: Event) -> str:
        return event.expanded.by(self.expands, self.enveloped)

    def passed(self) -> list[Event]:
        """The events that Debezium can send."""
        return [event for event in self.events() if not self.expands or self.expansion(event) != FAILS]

    def value(self, event: Event, text: str, ours: bytes) -> bytes:
        """Debezium's value for a payload with this text."""
        made = self.expansion(event) if self.expands and event.payload is not None else SAME
        if made == SAME:
            return ours
        return self.around(event, one_string(text) if made == TEXT else made)

    def around(self, event: Event, payload: str) -> bytes:
        return (f'{{"payload":{payload},"id":"{event.id}"}}' if self.enveloped else payload).encode()

    def topic_of(self, name: str, event: Event) -> str:
        return self.topic.format(name=name, type=getattr(event, self.routed_by))

    def connector(self, name: str) -> dict[str, str]:
        """Properties of Debezium's connector."""
        of_publication = {"publication.name": "known", "errors.tolerance": "all"} if self.expands else {"publication.name": "orders"}
        return (router(route_topic_replacement=self.topic.format(name=name, type="${routedByValue}"))
                | (of_publication if self.topic != DEFAULT_TOPIC else {}) | self.debezium)

    def sink(self, name: str) -> dict[str, str]:
        """Options of our server."""
        return {"topic": self.topic.format(name=name, type="${" + self.routed_by + "}"), "tombstone_on_empty_payload": "true",
                "additional_placement": ""} | self.ours


NO_TOMBSTONE = {"tombstone_on_empty_payload": "false"}
EXPAND = json_converter("value") | router(table_expand_json_payload="true") | WITHOUT_CONTEXT
SET_UPS = {
    "defaults": SetUp({}, {}, topic=DEFAULT_TOPIC),
    "json": SetUp(json_converter("key") | json_converter("value") | WITHOUT_CONTEXT, {"key_format": "json", "value_format": "json_string"} | NO_TOMBSTONE),
    "connect_json": SetUp(json_converter("key", True) | json_converter("value", True) | WITHOUT_CONTEXT,
                          {"key_format": "connect_json", "value_format": "connect_json"} | NO_TOMBSTONE),
    "expanded": SetUp(EXPAND, {"value_format": "json_compact", "null_behavior": "ignore"} | NO_TOMBSTONE, expands="ignore"),
    "expanded_nulls": SetUp(EXPAND | router(table_json_payload_null_behavior="optional_bytes", route_tombstone_on_empty_payload="true"),
                            {"value_format": "json_compact", "null_behavior": "optional_bytes"}, expands="optional_bytes"),
    "expanded_envelope": SetUp(EXPAND | router(table_fields_additional_placement="id:envelope"),
                               {"value_format": "json_compact", "null_behavior": "ignore", "additional_placement": "id:envelope"} | NO_TOMBSTONE,
                               expands="ignore", enveloped=True),
    "envelope": SetUp(json_converter("value") | WITHOUT_CONTEXT
                      | router(table_fields_additional_placement="type:envelope:eventType,tenant:envelope,id:envelope,aggregatetype:envelope,created_at:envelope"),
                      {"value_format": "json_string", "additional_placement": "type:envelope:eventType, header.tenant:envelope, id:envelope, aggregatetype:envelope, created_at:envelope"}
                      | NO_TOMBSTONE,
                      headers=("tenant",)),
    "placed": SetUp(router(table_fields_additional_placement="type:header:eventType,tenant:header,part:partition,aggregatetype:header,created_at:header,id:header",
                           table_field_event_timestamp="created") | WITHOUT_CONTEXT,
                    {"additional_placement": "type:header:eventType, header.tenant:header, header.part:partition, aggregatetype:header, created_at:header, id:header",
                     "timestamp": "created_at"},
                    headers=("tenant", "part"), timestamp=True),
    "by_type": SetUp(router(route_by_field="type", table_field_event_key="type", table_fields_additional_placement="tenant:header") | WITHOUT_CONTEXT,
                     {"key": "${event_type}", "additional_placement": "header.tenant:header"}, topic="{name}.events.{type}", routed_by="event_type", headers=("tenant",)),
    "by_tenant": SetUp(json_converter("value") | WITHOUT_CONTEXT
                       | router(route_tombstone_on_empty_payload="true", table_field_event_key="tenant", table_fields_additional_placement="tenant:header"),
                       {"value_format": "json_string", "key": "${header.tenant}", "additional_placement": "header.tenant:header"}, headers=("tenant",)),
    "bytes": SetUp({"value.converter": "io.debezium.converters.BinaryDataConverter",
                    "value.converter.delegate.converter.type": "org.apache.kafka.connect.json.JsonConverter"}
                   | router(table_field_event_payload="body") | WITHOUT_CONTEXT, {"value_format": "bytes"}, body=True),
}
EVENTS = events()


class Records:
    """The records by configuration and id."""

    def __init__(self, consumer: Consumer):
        self._consumer = consumer

    def take(self, expected: dict[str, int]) -> dict[str, dict[str, Record]]:
        """Takes the expected number of records of each configuration, each event once. Others are left over from a
        failed test."""
        found: dict[str, dict[str, Record]] = {name: {} for name in expected}

        def enough(records: list[Record]) -> bool:
            if records:
                name = "defaults" if records[-1].topic.startswith("outbox.event.") else records[-1].topic.split(".")[0]
                assert records[-1].id not in found.get(name, {}), f"twice in {name}: {records[-1].id}"
                found.setdefault(name, {})[records[-1].id] = records[-1]
            return all(len(found[name]) >= number for name, number in expected.items())

        self._consumer.take_until(enough, 180, lambda: f"{expected} records, and there are { {name: len(records) for name, records in found.items()} }")
        return found


@dataclass
class World:
    """The table of Debezium's documentation with the events, and the records that Debezium made of them."""

    db: Database
    kafka: object
    debezium: dict[str, dict[str, Record]]
    records: Records
    options: list[str]  # headers of the router

    def ours(self, name: str) -> dict[str, Record]:
        """Our records."""
        set_up = SET_UPS[name]
        self.db.kafka_sink(name, self.kafka, **set_up.sink(name))
        payload = "NULL, body, 'application/octet-stream'" if set_up.body else "payload, NULL, NULL"
        headers = ", ".join(f"'{column}', {column}" for column in set_up.headers)
        self.db.sql(f"""
            INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, content_type, headers, created_at, sink)
            SELECT id, aggregatetype, aggregateid, type, {payload}, jsonb_strip_nulls(jsonb_build_object({headers})), created_at, %s
            FROM outbox WHERE id = ANY (%s::uuid[]) ORDER BY n""", name, [event.id for event in set_up.events()])
        return self.records.take({name: len(set_up.events())})[name]


@pytest.fixture(scope="module")
def world(rig, kafka):
    topics = sorted({set_up.topic_of(name, event) for name, set_up in SET_UPS.items() for event in set_up.events()})
    kafka.create_topics(topics)  # a consumer would start from the beginning for a topic that is created later
    pg = rig.postgres(settings={"wal_level": "logical", "max_replication_slots": "20", "max_wal_senders": "20"}, tcp=True)
    debezium = rig.debezium(pg=pg, dbname="debezium", kafka=kafka, columns=COLUMNS, jit=False)
    db = Database(pg, "debezium")
    try:
        db.sql(f"CREATE PUBLICATION orders FOR TABLE outbox WHERE (aggregatetype = '{ORDER}') WITH (publish = 'insert')")
        db.sql(f"CREATE PUBLICATION known FOR TABLE outbox WHERE (aggregatetype = '{ORDER}' AND type <> '{WILD}') WITH (publish = 'insert')")
        debezium.add({name: set_up.connector(name) for name, set_up in SET_UPS.items()})
        with db.connect() as connection:
            connection.cursor().executemany(
                "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, tenant, part, created, created_at, body) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s::timestamp AT TIME ZONE 'UTC', %s)",
                [(event.id, event.aggregate_type, event.aggregate_id, event.event_type, event.payload, event.tenant, event.partition,
                  event.created_at, event.created_at, event.body) for event in EVENTS])
        with Consumer(kafka.bootstrap, topics) as consumer:
            records = Records(consumer)
            found = records.take({name: len(set_up.passed()) for name, set_up in SET_UPS.items()})
            debezium.must_run()
            db.sql("CREATE EXTENSION outbox")
            yield World(db, kafka, found, records, debezium.options(ROUTER))
    finally:
        debezium.kill()  # it stops slowly, and its output is no longer needed
        db.disconnect()
        pg.stop()


def milliseconds(timestamp: str) -> int:
    return int(datetime.fromisoformat(timestamp).replace(tzinfo=timezone.utc).timestamp() * 1000)


@pytest.mark.parametrize("name", SET_UPS)
def test_same_records(world, name):
    set_up, theirs, ours = SET_UPS[name], world.debezium[name], world.ours(name)
    texts = dict(world.db.sql("SELECT id::text, payload::text FROM outbox"))
    assert set(theirs) == {event.id for event in set_up.passed()}
    assert set(ours) == {event.id for event in set_up.events()}
    assert set_up.expands or len(theirs) > 300

    for event in set_up.events():
        record, about = ours[event.id], f"{name}, {event.label}"
        assert not set_up.timestamp or record.timestamp == milliseconds(event.created_at), about
        if set_up.expands and event.payload is not None:  # numbers keep all digits, and an array may contain anything
            assert record.value == set_up.around(event, compact(texts[event.id], set_up.expands)), about
        if event.id not in theirs:
            continue
        other = theirs[event.id]
        assert (record.topic, record.key) == (other.topic, other.key), about
        assert record.partition == other.partition or record.key is None, about  # without a key any partition is right
        headers = other.headers
        if name == "defaults":
            assert [header for header, _ in headers[:3]] == CONTEXT, about
            headers = headers[3:]
        assert record.headers == headers, about
        assert other.value == set_up.value(event, texts[event.id], record.value), about
        assert record.timestamp == other.timestamp or not set_up.timestamp, about


def test_every_option_of_the_router_is_told(world):
    """In the page's table for users of Debezium."""
    told = (ROOT / "docs/kafka-reference.md").read_text()
    assert len(world.options) > 15
    assert [option for option in world.options if f"`{option}`" not in told] == []
