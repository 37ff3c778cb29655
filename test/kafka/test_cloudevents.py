"""CloudEvents over Kafka, read by the official SDKs for Python and Java; that for Node.js checks them by the specification's
JSON schema."""

import base64
import json
import re
from datetime import datetime

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event
from outbox_rig.cloudevents import NO_VALUE, read_by_java
from outbox_rig.node import read_by_node
from outbox_rig.odd_events import EVENTS, as_written, attributes_of, enqueue, text_of
from outbox_rig.receiver import Delivery


@pytest.fixture
def sent(db, kafka, consume, request):
    """sent(format): for each event its name, the event, the attributes that it must have, its record, and what the
    Java SDK read."""

    def send(sink_format: str):
        topic = f"{request.node.name}-{sink_format}".replace("[", "-").replace("]", "")
        kafka.create_topic(topic, 1)
        db.kafka_sink("main", kafka, topic=topic, format=sink_format)
        ids = {name: enqueue(db, event) for name, event in EVENTS.items()}
        records = consume(topic).take(len(EVENTS))
        last, step = db.sql("SELECT s.last_value, q.increment_by FROM outbox.events_position AS s, pg_sequences AS q WHERE q.sequencename = 'events_position'")[0]
        shown = read_by_java(kafka.bootstrap, topic, len(EVENTS))
        for number, (name, event) in enumerate(EVENTS.items()):
            yield name, event, attributes_of(event, ids[name], db.name, last - step * (len(EVENTS) - 1 - number)), records[number], shown[number]

    return send


def by_python(record) -> tuple[dict[str, str], dict | str | bytes | None]:
    """Attributes and data."""
    event = from_kafka_event(KafkaMessage(dict(record.headers), record.key_bytes, record.value))
    found = event.get_attributes()
    return found | {"time": as_written(found["time"])}, event.get_data()


def by_java(shown: str) -> tuple[dict[str, str], str | None]:
    """The attributes that all events have in version 1.0, and the text form of the data."""
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
        assert data == (java_bytes(value) if value else None), name  # the Java SDK reads no bytes as no data


def test_structured(db, sent):
    events = list(sent("cloudevents-structured"))
    bodies = [Delivery("/", {"content-type": "application/cloudevents+json"}, record.value, None) for *_, record, _ in events]
    for (name, event, expected, record, shown), by_npm in zip(events, read_by_node("cloudevents", bodies), strict=True):
        headers = dict(record.headers)
        assert headers["content-type"] == b"application/cloudevents+json; charset=UTF-8", name
        assert not [header for header in headers if header.startswith("ce_")], name
        assert record.key == expected.get("partitionkey"), name

        document = json.loads(record.value)
        assert json.loads(by_npm)["valid"] is True, name
        assert all(re.fullmatch("[a-z0-9]{1,20}", member) for member in document if member != "data_base64"), name
        data = {member: document.pop(member) for member in ("data", "data_base64") if member in document}
        assert document == expected, name
        if isinstance(event.payload, str):
            assert record.value.endswith(b'"data":' + text_of(db, event) + b"}"), name  # numbers keep all digits
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
        elif name not in ("digits", "null"):  # lost by Jackson, and its text for null
            assert json.loads(re.fullmatch(r"JsonCloudEventData\{node=(.*)\}", data)[1]) == json.loads(event.payload), name
