"""CloudEvents over Kafka, read by the official SDKs for Python and Java, and checked against the specification's JSON Schema."""

import base64
import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import jsonschema
import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event
from outbox_rig.cloudevents import NO_VALUE, read_by_java

SCHEMA = jsonschema.Draft7Validator(json.loads(Path(__file__).with_name("cloudevents.schema.json").read_text()),
                                    format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass(frozen=True)
class Event:
    """What is enqueued: a payload of JSON, of bytes, or none."""

    payload: str | bytes | None = '{"a": 1}'
    aggregate_type: str = "Order"
    aggregate_id: str | None = "42"
    event_type: str = "order.created"
    partition_key: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    seq: int | None = None
    created_at: str = "2024-05-01T12:00:00.123456Z"
    source: str = "Order"  # the last part of the attribute

    @property
    def content_type(self) -> str:
        return "application/avro" if isinstance(self.payload, bytes) else "application/json"


EVENTS = {
    "plain": Event(),
    "unicode": Event('{"ä": "😀 \\u2028 \\"q\\" \\\\ \\u001f", "b": [1, null, {}]}', aggregate_id='ä "x" 😀 % \\', event_type="order.geändert 😀"),
    "source": Event(aggregate_type="Bestellung ä", source="Bestellung%20%C3%A4"),
    "digits": Event('{"a": 1.10, "b": 9223372036854775808, "c": 0.10000000000000000000001}'),
    "text": Event('"text"'),
    "null": Event("null"),
    "bytes": Event(bytes(range(256))),
    "no bytes": Event(b""),
    "tombstone": Event(None),
    "numbered": Event(seq=42),
    "other key": Event(partition_key="customer 7"),
    "no key": Event(aggregate_id=None),
    "traced": Event(headers={"traceparent": PARENT, "tracestate": "vendor=1,other=2"}),
    "badly traced": Event(headers={"traceparent": "00-0-0-01", "tracestate": "vendor=1"}),
    "extended": Event(headers={"ce_tenant": "acme ä", "plain": "x"}),
    "seconds": Event(created_at="2024-05-01T12:00:00.000000Z"),
}


def enqueue(db, event: Event) -> str:
    data, content_type = (event.payload, event.content_type) if isinstance(event.payload, bytes) else (None, None)
    return str(db.value("""
        INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, payload_bytes, content_type, headers, partition_key, seq, created_at)
        VALUES (%s, %s, %s, %s::jsonb, %s, %s, %s::jsonb, %s, %s, %s) RETURNING id""", event.aggregate_type, event.aggregate_id, event.event_type,
                        None if data is not None else event.payload, data, content_type, json.dumps(event.headers), event.partition_key, event.seq, event.created_at))


def attributes_of(event: Event, id: str, database: str, position: int) -> dict[str, str]:
    found = {"specversion": "1.0", "id": id, "source": f"/outbox/{database}/{event.source}", "type": event.event_type,
             "subject": event.aggregate_id, "time": event.created_at, "datacontenttype": None if event.payload is None else event.content_type,
             "partitionkey": event.partition_key or event.aggregate_id, "sequence": f"{event.seq or position:019d}",
             "tenant": event.headers.get("ce_tenant")}
    if event.headers.get("traceparent") == PARENT:
        found |= event.headers
    return {name: value for name, value in found.items() if value is not None}


@pytest.fixture
def sent(db, kafka, consume, request):
    """sent(format): of each event its name, itself, the attributes that it must have, its record, and what Java's SDK read."""

    def send(sink_format: str):
        topic = f"{request.node.name}-{sink_format}".replace("[", "-").replace("]", "")
        kafka.create_topic(topic, 1)
        db.kafka_sink("main", kafka, topic=topic, format=sink_format)
        ids = {name: enqueue(db, event) for name, event in EVENTS.items()}
        records = consume(topic).take(len(EVENTS))
        first = db.value("SELECT last_value FROM outbox.events_position") - len(EVENTS) + 1
        shown = read_by_java(kafka.bootstrap, topic, len(EVENTS))
        for number, (name, event) in enumerate(EVENTS.items()):
            yield name, event, attributes_of(event, ids[name], db.name, first + number), records[number], shown[number]

    return send


def text_of(db, event: Event) -> bytes | None:
    """The payload as it must arrive."""
    return event.payload if not isinstance(event.payload, str) else db.value("SELECT (%s::jsonb)::text", event.payload).encode()


def as_written(time: datetime) -> str:
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")


def by_python(record) -> tuple[dict[str, str], dict | str | bytes | None]:
    """Attributes and data."""
    event = from_kafka_event(KafkaMessage(dict(record.headers), record.key_bytes, record.value))
    found = event.get_attributes()
    return found | {"time": as_written(found["time"])}, event.get_data()


def by_java(shown: str) -> tuple[dict[str, str], str | None]:
    """Attributes, which all events have in version 1.0, and how the data shows itself."""
    found = re.fullmatch(r"CloudEvent\{id='(?P<id>.*?)', source=(?P<source>.*?), type='(?P<type>.*?)'(, datacontenttype='(?P<datacontenttype>.*?)')?"
                         r"(, subject='(?P<subject>.*?)')?, time=(?P<time>.*?)(, data=(?P<data>.*))?, extensions=\{(?P<extensions>.*?)\}\}", shown)
    assert found, shown
    attributes = {name: value for name, value in found.groupdict().items() if value is not None}
    extensions, data = attributes.pop("extensions"), attributes.pop("data", None)
    attributes |= {"specversion": "1.0", "time": as_written(datetime.fromisoformat(attributes["time"]))}
    return attributes | dict(part.split("=", 1) for part in re.split(r", (?=[a-z0-9]+=)", extensions) if part), data


def java_bytes(data: bytes) -> str:
    return f"BytesCloudEventData{{value=[{', '.join(str(byte - 256 if byte > 127 else byte) for byte in data)}]}}"


def test_binary(db, sent):
    for name, event, expected, record, shown in sent("cloudevents"):
        headers = dict(record.headers)
        assert record.value == text_of(db, event), name  # byte for byte; a tombstone has none
        assert record.key == expected.get("partitionkey"), name
        assert headers.get("content-type") == (expected["datacontenttype"].encode() if "datacontenttype" in expected else None), name
        ours = {header: value for header, value in headers.items() if header.startswith("ce_")}
        assert ours == {f"ce_{attribute}": value.encode() for attribute, value in expected.items() if attribute != "datacontenttype"}, name
        assert headers.get("plain") == (b"x" if name == "extended" else None)

        found, data = by_python(record)
        assert found == expected, name
        if isinstance(event.payload, str):
            assert data == json.loads(event.payload), name
        found, data = by_java(shown)
        assert found == expected, name
        value = record.value if record.value is not None else NO_VALUE.encode()
        assert data == (java_bytes(value) if value else None), name  # to Java's SDK no bytes are no data


def test_structured(db, sent):
    for name, event, expected, record, shown in sent("cloudevents-structured"):
        headers = dict(record.headers)
        assert headers["content-type"] == b"application/cloudevents+json; charset=UTF-8", name
        assert not [header for header in headers if header.startswith("ce_")], name
        assert record.key == expected.get("partitionkey"), name

        document = json.loads(record.value)
        SCHEMA.validate(document)
        assert all(re.fullmatch("[a-z0-9]{1,20}", member) for member in document if member != "data_base64"), name
        data = {member: document.pop(member) for member in ("data", "data_base64") if member in document}
        assert document == expected, name
        if isinstance(event.payload, str):
            assert record.value.endswith(b'"data":' + text_of(db, event) + b"}"), name  # no digit is lost
            assert data == {"data": json.loads(event.payload)}, name
        else:
            assert data == ({} if event.payload is None else {"data_base64": base64.b64encode(event.payload).decode()}), name

        found, data = by_python(record)
        assert found == expected, name
        assert data == (json.loads(event.payload) if isinstance(event.payload, str) else event.payload), name
        found, data = by_java(shown)
        assert found == expected, name
        if isinstance(event.payload, bytes):
            assert data == java_bytes(event.payload), name
        elif event.payload is None:
            assert data is None, name
        elif name not in ("digits", "null"):  # Jackson's own loss, and its word for null
            assert json.loads(re.fullmatch(r"JsonCloudEventData\{node=(.*)\}", data)[1]) == json.loads(event.payload), name
