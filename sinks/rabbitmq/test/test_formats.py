"""The formats of a message, and that a preview shows the bytes that are published."""

import json

import pytest

from queues import Queue

EVENT = {"headers": '{"tenant": "eu", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}'}


def deliver(db, broker, exchange, **options):
    """One event: its id, the message, and the preview's parts."""
    queue = Queue(broker, exchange)
    db.rabbit_sink("rabbit", broker, exchange=exchange, **options)
    db.sql("SELECT outbox.pause('rabbit')")
    id = db.enqueue("Order", "7", "order.created", '{"a": [1, 2.50, "ä"]}', **EVENT)
    preview = db.sql("SELECT part, name, value FROM outbox.preview(%s, 'rabbit')", id)
    db.sql("SELECT outbox.resume('rabbit')")
    [(method, properties, body)] = queue.read(1)
    shown = [("exchange", None, method.exchange), ("routing_key", None, method.routing_key)]
    shown += [("property", name, str(getattr(properties, name))) for name in ("content_type", "delivery_mode", "message_id", "timestamp", "type")]
    shown += [("header", name, value) for name, value in properties.headers.items()]
    shown += [("body", None, body.decode())]
    assert [(part, name or None, str(value)) for part, name, value in preview] == shown
    return id, properties, body


def test_debezium(db, broker, exchange):
    id, properties, body = deliver(db, broker, exchange, additional_placement="event_type:header:eventType")
    assert body.decode() == '{"a": [1, 2.50, "ä"]}' and properties.content_type == "application/json"
    assert properties.headers == {"id": id, "eventType": "order.created"} | json.loads(EVENT["headers"])


def test_debezium_compact(db, broker, exchange):
    _, _, body = deliver(db, broker, exchange, value_format="json_compact", additional_placement="event_type:envelope")
    assert json.loads(body) == {"payload": {"a": [1, 2.5, "ä"]}, "event_type": "order.created"} and b" " not in body


def test_raw(db, broker, exchange):
    id, properties, body = deliver(db, broker, exchange, format="raw")
    assert body.decode() == '{"a": [1, 2.50, "ä"]}' and properties.headers["id"] == id


def test_cloudevents(db, broker, exchange):
    """The names of CloudEvents' AMQP binding."""
    id, properties, body = deliver(db, broker, exchange, format="cloudevents")
    assert properties.content_type == "application/json" and body.decode() == '{"a": [1, 2.50, "ä"]}'
    headers = properties.headers
    assert headers["cloudEvents_id"] == id and headers["cloudEvents_specversion"] == "1.0" and headers["cloudEvents_type"] == "order.created"
    assert headers["cloudEvents_source"] == f"/outbox/{db.name}/Order" and headers["cloudEvents_subject"] == "7"
    assert headers["tenant"] == "eu" and not any(name.startswith("ce_") or name == "content-type" for name in headers)


def test_cloudevents_structured(db, broker, exchange):
    id, properties, body = deliver(db, broker, exchange, format="cloudevents-structured", source="/shop")
    assert properties.content_type == "application/cloudevents+json; charset=UTF-8"
    event = json.loads(body)
    assert (event["id"], event["source"], event["data"]) == (id, "/shop", {"a": [1, 2.5, "ä"]})
    assert properties.headers["tenant"] == "eu"


def test_bytes_and_binary_headers_and_no_payload(db, broker, exchange):
    queue = Queue(broker, exchange)
    db.rabbit_sink("rabbit", broker, exchange=exchange, tombstone_on_empty_payload="true")
    db.sql("SELECT outbox.enqueue_bytes('Order', '1', 'order.raw', '\\x00ff', 'application/avro')")
    db.sql("SELECT outbox.enqueue('Order', '1', 'order.gone', NULL)")
    first, second = queue.read(2)
    assert first[2] == b"\0\xff" and first[1].content_type == "application/avro"
    assert second[2] == b"" and second[1].content_type is None


def test_a_body_of_many_frames(db, broker, exchange):
    queue = Queue(broker, exchange)
    db.rabbit_sink("rabbit", broker, exchange=exchange)
    text = json.dumps("x" * 3_000_000)
    db.enqueue("Order", "1", "order.large", text)
    db.enqueue("Order", "1", "order.small", "1")
    first, second = queue.read(2)
    assert first[2].decode() == text and second[2] == b"1"


def test_the_default_exchange(db, broker, exchange):
    queue = Queue(broker, exchange)
    db.rabbit_sink("rabbit", broker, exchange="", routing_key=exchange)
    id = db.enqueue("Order", "1")
    assert queue.read(1)[0][1].message_id == id


@pytest.mark.parametrize("options, message", [
    ("exchange 'e'", 'option "hosts" is required'),
    ("hosts 'a'", 'option "exchange" is required'),
    ("hosts 'amqp://a', exchange 'e'", "host or host:port, without a scheme"),
    ("hosts 'a:0', exchange 'e'", "Example: 'first.example, second.example:1234"),
    ("hosts 'a,,b', exchange 'e'", "comma-separated list"),
    ("hosts 'a', exchange 'aggregate_type'", "write ${aggregate_type}"),
    ("hosts 'a', exchange '${aggregat_type}'", "Perhaps you meant ${aggregate_type}"),
    ("hosts 'a', exchange 'e', routing_key '${'", "does not end"),
    ("hosts 'a', exchange 'e', heartbeat '0'", "Expected a duration from 1s to 1h"),
    ("hosts 'a', exchange 'e', connect_timeout '1d'", "Expected a duration from 100ms to 5min"),
    ("hosts 'a', exchange 'e', max_in_flight '0'", "from 1 to 50000"),
    ("hosts 'a', exchange 'e', max_message '1'", "from 1kB"),
    ("hosts 'a', exchange 'e', vhost ''", "1 to 255 bytes"),
    ("hosts 'a', exchange 'e', ssl_ca_pem 'x'", "ssl_ca_pem"),
    ("hosts 'a', exchange 'e', enable_ssl_certificate_verification 'false'", "set tls 'true'"),
    ("hosts 'a', exchange 'e', additional_placement 'aggregate_id:partition'", "a message has no partition"),
    ("hosts 'a', exchange 'e', additional_placement 'event_type:header:CC'", "takes CC and BCC as routing keys"),
    ("hosts 'a', exchange 'e', format 'avro'", "Expected one of: debezium, cloudevents"),
    ("hosts 'a', exchange 'e', password 'x'", "is a secret and cannot be an option of the server"),
    ("hosts 'a', exchange 'e', exchnge 'x'", 'Perhaps you meant the option "exchange"'),
])
def test_options_are_checked(db, options, message):
    db.refuses(f"CREATE SERVER bad FOREIGN DATA WRAPPER outbox_rabbitmq OPTIONS ({options})", message)


@pytest.mark.parametrize("options, message", [
    ("user 'u'", 'option "password" is required with "user"'),
    ("password 'secret'", 'option "user" is required'),
    ("hosts 'a'", "belongs to the server"),
    ("ssl_certificate_pem 'x'", "ssl_certificate_pem"),
    ("user 'u', password ''", "no empty password"),
])
def test_options_of_mappings_are_checked(db, options, message):
    db.sql("CREATE SERVER good FOREIGN DATA WRAPPER outbox_rabbitmq OPTIONS (hosts '127.0.0.1:1', exchange 'e')")
    db.refuses(f"CREATE USER MAPPING FOR PUBLIC SERVER good OPTIONS ({options})", message)
    db.sql("DROP SERVER good")


def test_events_are_checked(db, broker, exchange):
    db.rabbit_sink("rabbit", broker, exchange=exchange, routing_key="${header.route}", max_message="1024")
    enqueue = "SELECT outbox.enqueue('Order', '1', 'x', %s, headers => %s)"
    db.refuses(enqueue.replace("%s", "'1'", 1).replace("%s", "'{}'", 1), "event has no value for ${header.route}")
    db.refuses(enqueue.replace("%s", "'1'", 1).replace("%s", "jsonb_build_object('route', repeat('x', 256))", 1), "is too long for AMQP")
    db.refuses(enqueue.replace("%s", "to_jsonb(repeat('x', 2000))", 1).replace("%s", "'{\"route\": \"x\"}'", 1), "too large for a RabbitMQ message")
    db.refuses(enqueue.replace("%s", "'1'", 1).replace("%s", "'{\"route\": \"x\", \"CC\": \"y\"}'", 1), 'header "CC" cannot be sent to RabbitMQ')
    db.refuses(enqueue.replace("%s", "'1'", 1).replace("%s", "jsonb_build_object('route', 'x', 'y', repeat('x', 140000))", 1), "headers")
    db.refuses(enqueue.replace("%s", "NULL", 1).replace("%s", "'{\"route\": \"x\"}'", 1), "payload is NULL")
    assert db.value("SELECT count(*) FROM outbox.events") == 0


def test_any_owner_names_hosts_as_of_a_kafka_sink(db):
    db.sql("CREATE ROLE maker; GRANT USAGE ON FOREIGN DATA WRAPPER outbox_rabbitmq TO maker; SET ROLE maker")
    db.sql("CREATE SERVER own FOREIGN DATA WRAPPER outbox_rabbitmq OPTIONS (hosts '127.0.0.1:1', exchange 'e')")
    db.sql("RESET ROLE; DROP SERVER own; DROP OWNED BY maker; DROP ROLE maker")
