"""Payloads that the application has serialized: Confluent's serializers write them, its deserializers read them from
Kafka."""

import base64
import json

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, dual_schema_id_deserializer, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"},
                                                                  {"name": "raw", "type": "bytes"}]})
KEY = json.dumps({"type": "bytes"})
VALUES = [{"id": 2**62, "note": "ä😀\x00 \u2028", "raw": bytes(range(256))}, {"id": -1, "note": "", "raw": b"\xff\x00 short"}]


@pytest.fixture(scope="module")
def registry():
    """Confluent's registry in this process: it maps schemas to ids and back."""
    return SchemaRegistryClient.new_client({"url": "mock://outbox"})


@pytest.fixture(scope="module")
def order():
    """A Protobuf message, as protoc would have generated it."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate({"id": "TYPE_INT64", "note": "TYPE_STRING", "raw": "TYPE_BYTES"}.items(), 1):
        message.field.add(name=name, number=number, type=kind, label="LABEL_OPTIONAL")
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def context(topic, field=MessageField.VALUE, headers=()):
    return SerializationContext(topic, field, list(headers))


def enqueue(db, aggregate, payload: bytes, content_type: str, key: str = "42", headers: dict | None = None):
    db.sql("SELECT outbox.enqueue_bytes(%s, '42', 'order.created', %s, %s, headers => %s::jsonb, partition_key => %s)",
           aggregate, payload, content_type, json.dumps(headers or {}), key)


@pytest.mark.parametrize("value_format", [{}, {"value_format": "bytes"}, {"format": "raw"}], ids=["defaults", "bytes", "raw"])
def test_avro(db, kafka, consume, aggregate, registry, value_format):
    topic = f"outbox.event.{aggregate}"
    serialize = AvroSerializer(registry, ORDER)
    db.kafka_sink("main", kafka, **value_format)
    payloads = [serialize(value, context(topic)) for value in VALUES]
    assert all(payload[0] == 0 for payload in payloads)  # the frame: a zero byte and the schema's id
    for payload in payloads:
        enqueue(db, aggregate, payload, "application/avro")

    records = consume(topic).take(len(VALUES))
    assert [record.value for record in records] == payloads
    assert [AvroDeserializer(registry)(record.value, context(topic)) for record in records] == VALUES


def test_protobuf(db, kafka, consume, aggregate, registry, order):
    topic = f"outbox.event.{aggregate}"
    serialize = ProtobufSerializer(order, registry, {"use.deprecated.format": False})
    db.kafka_sink("main", kafka)
    messages = [order(**value) for value in VALUES]
    for message in messages:
        enqueue(db, aggregate, serialize(message, context(topic)), "application/x-protobuf")

    deserialize = ProtobufDeserializer(order, {"use.deprecated.format": False}, registry)
    assert [deserialize(record.value, context(topic)) for record in consume(topic).take(len(VALUES))] == messages


def test_schema_ids_in_headers_and_binary_keys(db, kafka, consume, aggregate, registry):
    topic = f"outbox.event.{aggregate}"
    by_header = {"schema.id.serializer": header_schema_id_serializer}
    serialize, serialize_key = AvroSerializer(registry, ORDER, conf=by_header), AvroSerializer(registry, KEY, conf=by_header)
    db.kafka_sink("main", kafka, key_format="base64")
    keys = [b"\x00\xff\x80 a key", bytes(range(256))]
    written = []
    for value, key in zip(VALUES, keys):
        of_value, of_key = context(topic), context(topic, MessageField.KEY)
        payload, key_bytes = serialize(value, of_value), serialize_key(key, of_key)
        headers = of_key.headers + of_value.headers
        assert [(name, len(header), header[0]) for name, header in headers] == [("__key_schema_id", 17, 1), ("__value_schema_id", 17, 1)]
        enqueue(db, aggregate, payload, "application/avro", key=base64.b64encode(key_bytes).decode(),
                headers={name: {"base64": base64.b64encode(header).decode()} for name, header in headers})
        written.append((payload, key_bytes, headers))

    records = sorted(consume(topic).take(len(VALUES)), key=lambda record: len(record.key_bytes))
    assert [(record.value, record.key_bytes, record.headers[2:]) for record in records] == written  # after id and eventType
    dual = {"schema.id.deserializer": dual_schema_id_deserializer}
    for record, value, key in zip(records, VALUES, keys):
        assert AvroDeserializer(registry, conf=dual)(record.value, context(topic, headers=record.headers)) == value
        assert AvroDeserializer(registry, conf=dual)(record.key_bytes, context(topic, MessageField.KEY, record.headers)) == key
