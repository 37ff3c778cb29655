"""The formats of an entry, and that a preview shows the bytes that are sent."""

import json

import pytest
from outbox_rig import wait_until

EVENT = {"headers": '{"tenant": "eu", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}'}


def deliver(db, server, stream, **options) -> dict[str, str]:
    """One event as an entry, which is what the preview shows."""
    db.redis_sink("redis", server, stream=stream.name, **options)
    db.sql("SELECT outbox.pause('redis')")
    id = db.enqueue("Order", "7", "order.created", '{"a": [1, 2.50, "ä"]}', **EVENT)
    preview = db.sql("SELECT part, name, bytes FROM outbox.preview(%s, 'redis')", id)
    db.sql("SELECT outbox.resume('redis')")
    [entry] = stream.read(1)
    [fields] = stream.fields()
    assert [(part, name or None, bytes(value)) for part, name, value in preview] == [("stream", None, stream.name.encode())] + \
        [("field", name.decode(), value) for name, value in fields]
    assert entry.pop("id") == id and entry["type"] == "order.created" and entry["key"] == "7"
    return entry | {"event": id}


def headers(entry: dict[str, str]) -> dict[str, str]:
    return {name.removeprefix("header."): value for name, value in entry.items() if name.startswith("header.")}


def test_debezium(db, server, stream):
    entry = deliver(db, server, stream, additional_placement="event_type:header:eventType")
    assert entry["payload"] == '{"a": [1, 2.50, "ä"]}' and entry["content_type"] == "application/json"
    assert headers(entry) == {"eventType": "order.created"} | json.loads(EVENT["headers"]), "the id is a field of its own"


def test_debezium_compact(db, server, stream):
    entry = deliver(db, server, stream, value_format="json_compact", additional_placement="event_type:envelope")
    assert json.loads(entry["payload"]) == {"payload": {"a": [1, 2.5, "ä"]}, "event_type": "order.created"} and " " not in entry["payload"]


def test_raw(db, server, stream):
    entry = deliver(db, server, stream, format="raw")
    assert entry["payload"] == '{"a": [1, 2.50, "ä"]}' and headers(entry) == json.loads(EVENT["headers"])


def test_cloudevents(db, server, stream):
    entry = deliver(db, server, stream, format="cloudevents")
    assert entry["content_type"] == "application/json" and entry["payload"] == '{"a": [1, 2.50, "ä"]}'
    found = headers(entry)
    assert (found["ce_id"], found["ce_specversion"], found["ce_type"]) == (entry["event"], "1.0", "order.created")
    assert (found["ce_source"], found["ce_subject"], found["tenant"]) == (f"/outbox/{db.name}/Order", "7", "eu")
    assert "content-type" not in found


def test_cloudevents_structured(db, server, stream):
    entry = deliver(db, server, stream, format="cloudevents-structured", source="/shop")
    assert entry["content_type"] == "application/cloudevents+json; charset=UTF-8"
    event = json.loads(entry["payload"])
    assert (event["id"], event["source"], event["data"]) == (entry["event"], "/shop", {"a": [1, 2.5, "ä"]})
    assert headers(entry)["tenant"] == "eu"


def test_bytes_and_no_payload_and_no_key(db, server, stream):
    db.redis_sink("redis", server, stream=stream.name, tombstone_on_empty_payload="true")
    db.sql("SELECT outbox.enqueue_bytes('Order', '1', 'order.raw', '\\x00ff0d0a', 'application/avro')")
    db.sql("SELECT outbox.enqueue('Order', '1', 'order.gone', NULL)")
    db.sql("SELECT outbox.enqueue('Order', '1', 'order.keyless', '{}', partition_key => '')")
    wait_until(lambda: stream.count() == 3, 30)
    by_type = {entry[b"type"]: entry for entry in map(dict, stream.fields())}
    assert by_type[b"order.raw"][b"payload"] == b"\0\xff\r\n" and by_type[b"order.raw"][b"content_type"] == b"application/avro"
    assert not {b"payload", b"content_type"} & set(by_type[b"order.gone"])
    assert b"key" not in by_type[b"order.keyless"]


def test_a_large_payload(db, server, stream):
    db.redis_sink("redis", server, stream=stream.name)
    text = json.dumps("x" * 3_000_000)
    db.enqueue("Order", "1", "order.large", text)
    assert stream.read(1)[0]["payload"] == text


@pytest.mark.parametrize("options, message", [
    ("", 'option "hosts" is required'),
    ("hosts 'redis://a'", "without a scheme"),
    ("hosts 'a', stream ''", "A stream has a name"),
    ("hosts 'a', stream 'aggregate_type'", "write ${aggregate_type}"),
    ("hosts 'a', stream '${nothing}'", "nothing"),
    ("hosts 'a', maxlen '0'", "maxlen"),
    ("hosts 'a', database '-1'", "database"),
    ("hosts 'a', wait_replicas '0'", "wait_replicas"),
    ("hosts 'a', max_in_flight '0'", "max_in_flight"),
    ("hosts 'a', max_message '1'", "max_message"),
    ("hosts 'a', ssl_ca_pem 'x'", "ssl_ca_pem"),
    ("hosts 'a', enable_ssl_certificate_verification 'false'", "set tls 'true'"),
    ("hosts 'a', additional_placement 'aggregate_id:partition'", "an entry has no partition"),
    ("hosts 'a', format 'avro'", "Expected one of: debezium, cloudevents"),
    ("hosts 'a', password 'x'", "is a secret and cannot be an option of the server"),
    ("hosts 'a', straem 'x'", 'Perhaps you meant the option "stream"'),
])
def test_options_are_checked(db, options, message):
    db.refuses("CREATE SERVER bad FOREIGN DATA WRAPPER outbox_redis" + (f" OPTIONS ({options})" if options else ""), message)


@pytest.mark.parametrize("options, message", [
    ("user 'u'", 'option "password" is required with "user"'),
    ("password ''", "It is empty"),
    ("hosts 'a'", "belongs to the server"),
    ("ssl_certificate_pem 'x'", "ssl_certificate_pem"),
])
def test_options_of_mappings_are_checked(db, options, message):
    db.sql("CREATE SERVER good FOREIGN DATA WRAPPER outbox_redis OPTIONS (hosts '127.0.0.1:1')")
    db.refuses(f"CREATE USER MAPPING FOR PUBLIC SERVER good OPTIONS ({options})", message)
    db.sql("DROP SERVER good")


def test_events_are_checked(db, server):
    db.redis_sink("redis", server, stream="${header.where}", max_message="1024")
    enqueue = "SELECT outbox.enqueue('Order', '1', 'x', {}, headers => {})"
    db.refuses(enqueue.format("'1'", "'{}'"), "event has no value for ${header.where}")
    db.refuses(enqueue.format("'1'", "'{\"where\": \"\"}'"), "event has no stream")
    db.refuses(enqueue.format("to_jsonb(repeat('x', 2000))", "'{\"where\": \"x\"}'"), "too large for an entry of Redis")
    db.refuses(enqueue.format("NULL", "'{\"where\": \"x\"}'"), "payload is NULL")
    assert db.value("SELECT count(*) FROM outbox.events") == 0


def test_any_owner_names_hosts_as_of_a_kafka_sink(db):
    db.sql("CREATE ROLE maker; GRANT USAGE ON FOREIGN DATA WRAPPER outbox_redis TO maker; SET ROLE maker")
    db.sql("CREATE SERVER own FOREIGN DATA WRAPPER outbox_redis OPTIONS (hosts '127.0.0.1:1')")
    db.sql("RESET ROLE; DROP SERVER own; DROP OWNED BY maker; DROP ROLE maker")
