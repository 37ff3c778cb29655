"""The records that Kafka's consumers receive with each option about the record, from the real broker."""

import json

import pytest
from outbox_rig import wait_until


@pytest.fixture
def receive(db, kafka, consume, aggregate):
    """receive(topic, options, *events): enqueues the events (dicts for Database.enqueue()) and returns their
    records."""

    def do(topic: str, options: dict[str, str], *events: dict) -> list:
        db.kafka_sink("k", kafka, **options)
        for event in events:
            db.enqueue(aggregate, **{"aggregate_id": "1"} | event)
        return consume(topic).take(len(events))

    return do


def headers(record) -> dict[str, bytes | None]:
    names = [name for name, _ in record.headers]
    assert len(names) == len(set(names)), f"a header twice: {names}"
    return dict(record.headers)


def test_topic_key_and_partition_by_template(receive, aggregate):
    options = {"topic": f"{aggregate}.${{event_type}}.${{header.tenant}}", "key": "${aggregate_type}/${aggregate_id}", "partition": "${header.shard}"}
    events = [{"aggregate_id": str(n), "headers": json.dumps({"tenant": "acme", "shard": n})} for n in range(12)]
    records = receive(f"{aggregate}.order.created.acme", options, *events)
    assert {(r.key, r.partition) for r in records} == {(f"{aggregate}/{n}", n) for n in range(12)}


def test_a_partition_that_does_not_exist_is_told_and_waits_for_it(db, kafka, consume, aggregate):
    db.kafka_sink("k", kafka, partition="${header.shard}", retry="200ms*10")
    db.enqueue(aggregate, "1", headers='{"shard": 99}')
    db.enqueue(aggregate, "2", headers='{"shard": 3}')
    [record] = consume(f"outbox.event.{aggregate}").take(1)
    assert (record.key, record.partition) == ("2", 3)
    wait_until(lambda: db.value("SELECT attempts > 0 FROM outbox.events"), 10, "the failure")
    assert "partition" in db.value("SELECT last_error FROM outbox.events").lower()


@pytest.mark.parametrize("timestamp", ["created_at", None])
def test_timestamp(db, kafka, consume, aggregate, timestamp):
    db.kafka_sink("k", kafka, **({"timestamp": timestamp} if timestamp else {}))
    db.sql("INSERT INTO outbox.events (aggregate_type, event_type, created_at) VALUES (%s, 'e', '2024-05-01T10:00:00.123999Z')", aggregate)
    db.sql("INSERT INTO outbox.events (aggregate_type, event_type, created_at) VALUES (%s, 'e', now() + interval '1 day')", aggregate)
    times = sorted(record.timestamp for record in consume(f"outbox.event.{aggregate}").take(2))
    now = db.value("SELECT extract(epoch FROM clock_timestamp()) * 1000")
    assert times[0] == 1714557600123 if timestamp == "created_at" else times[0] > now - 60_000
    assert now - 60_000 < times[1] <= now, "a broker refuses the future"


def test_placed_headers_and_envelope(receive, aggregate):
    options = {"value_format": "json_compact", "null_behavior": "ignore",
               "additional_placement": "type:header:eventType, dedup_key:header, header.tenant:envelope, seq:envelope"}
    [record] = receive(f"outbox.event.{aggregate}", options,
                       {"payload": '{"a": null, "n": 12345678901234567890.10}', "headers": '{"tenant": "acme", "other": true}'})
    assert record.value == b'{"payload":{"n":12345678901234567890.10},"tenant":"acme","seq":null}'
    got = headers(record)
    assert got.pop("id") and got == {"eventType": b"order.created", "dedup_key": None, "other": b"true"}


@pytest.mark.parametrize("tombstone, value", [("true", None), ("false", b"null")])
def test_tombstones(receive, aggregate, tombstone, value):
    [record] = receive(f"outbox.event.{aggregate}", {"value_format": "json_string", "tombstone_on_empty_payload": tombstone}, {"payload": None})
    assert (record.key, record.value) == ("1", value)


@pytest.mark.parametrize("options", [{}, {"value_format": "bytes"}, {"value_format": "json_compact"}, {"format": "raw"}, {"format": "cloudevents"}], ids=str)
def test_framed_bytes_and_a_schema_id_arrive_byte_for_byte(db, kafka, consume, aggregate, options):
    """As Confluent's serializers write them: a frame around Avro, and an id in a binary header."""
    db.kafka_sink("k", kafka, **options)
    body, schema_id = bytes([0, 0, 0, 0, 7, 255, 10, 13, 0]), bytes([1]) + bytes(range(240, 256))
    db.sql("SELECT outbox.enqueue_bytes(%s, '1', 'e', %s, 'application/avro', jsonb_build_object('__value_schema_id', jsonb_build_object('base64', encode(%s, 'base64'))))",
           aggregate, body, schema_id)
    [record] = consume(f"outbox.event.{aggregate}").take(1)
    assert (record.value, headers(record)["__value_schema_id"]) == (body, schema_id)
    assert headers(record).get("content-type") == (b"application/avro" if "format" in options else None)


def test_options_that_no_longer_fit_make_a_dead_letter_that_says_why(db, kafka, consume, aggregate):
    db.kafka_sink("k", kafka, topic=aggregate)
    db.enqueue(aggregate, "1", headers='{"tenant": "acme"}', available_at=db.value("SELECT now() + interval '6 s'"))
    db.enqueue(aggregate, "2", available_at=db.value("SELECT now() + interval '6 s'"))
    db.set_sink("k", topic=f"{aggregate}.${{header.tenant}}")
    assert [record.key for record in consume(f"{aggregate}.acme").take(1)] == ["1"]
    wait_until(lambda: db.sql("SELECT aggregate_id, status FROM outbox.events") == [("2", "FAILED")], 10, "the dead letter")
    assert db.value("SELECT last_error FROM outbox.events") == \
        'event has no value for ${header.tenant}: Option "topic" of the sink needs one.'
