"""The main job: enqueue in a transaction, commit, and the event arrives in Kafka and at a webhook, in order."""

import json
import uuid
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.node import read_by_node
from outbox_rig.receiver import SECRET


def delivered(db) -> bool:
    return db.pending() == 0


# ---- Kafka -------------------------------------------------------------------------------------------------------


@pytest.mark.librdkafka
def test_event_arrives_as_debezium_would_send_it(db, kafka, consume):
    db.kafka_sink("main", kafka)
    key = f"42-{uuid.uuid4()}"  # the topic is shared with other tests; this key is not
    event = db.enqueue("Order", key, payload='{"total":10.50,"items":[1,2],"note":"ä"}')
    [record] = [r for r in consume("outbox.event.Order").take_until(lambda got: got[-1:] and got[-1].key == key) if r.key == key]
    assert record.topic == "outbox.event.Order"
    assert record.headers == [("id", event.encode()), ("eventType", b"order.created")]
    text = db.value("""SELECT '{"total":10.50,"items":[1,2],"note":"ä"}'::jsonb::text""")
    assert record.value == text.encode()
    assert uuid.UUID(event).version == 7
    wait_until(lambda: delivered(db), 10, "the row to leave")


@pytest.mark.librdkafka
def test_partition_is_the_one_that_java_would_choose(db, kafka, consume, aggregate):
    topic = f"outbox.event.{aggregate}"
    kafka.create_topic(topic, 12)
    db.kafka_sink("main", kafka)
    expected = {"21": 0, "foobar": 6, "abc": 3, "1": 3}
    for key in expected:
        db.enqueue(aggregate, key)
    assert {r.key: r.partition for r in consume(topic).take(len(expected))} == expected


def test_payload_null_is_a_tombstone_where_the_sink_says_so(db, kafka, consume, aggregate):
    db.kafka_sink("main", kafka)
    for statement in ("SELECT outbox.enqueue(%s, 'k', 'order.deleted', NULL)",
                      "INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) VALUES (%s, 'k', 'order.deleted', NULL)"):
        with pytest.raises(psycopg.Error) as refused:
            db.sql(statement, aggregate)
        assert "tombstone_on_empty_payload" in refused.value.diag.message_hint
    db.sql("ALTER SERVER main OPTIONS (ADD tombstone_on_empty_payload 'true')")
    db.value("SELECT outbox.enqueue(%s, 'k', 'order.deleted', NULL)", aggregate)
    [record] = consume(f"outbox.event.{aggregate}").take(1)
    assert (record.key, record.value) == ("k", None)


def test_a_pending_tombstone_is_sent_by_a_sink_that_does_not_say_so(db, kafka, consume, aggregate):
    """Such events come from an upgrade from a version without the option, or were enqueued before their sink was
    created."""
    db.sql("SELECT outbox.enqueue(%s, 'before the sink', 'order.deleted', NULL)", aggregate)
    db.kafka_sink("main", kafka, tombstone_on_empty_payload="true")
    with db.connect(autocommit=False) as connection:
        connection.execute("SELECT outbox.enqueue(%s, 'before the option went', 'order.deleted', NULL)", [aggregate])
        connection.execute("ALTER SERVER main OPTIONS (DROP tombstone_on_empty_payload)")
    records = consume(f"outbox.event.{aggregate}").take(2)
    assert {r.key: r.value for r in records} == {"before the sink": None, "before the option went": None}
    wait_until(lambda: delivered(db), 10, "the rows to leave")
    assert db.value("SELECT count(*) FROM outbox.events WHERE status = 'FAILED'") == 0


def test_raw_bytes_pass_untouched(db, kafka, consume, aggregate):
    db.kafka_sink("main", kafka)
    body = bytes(range(256))
    db.value("SELECT outbox.enqueue_bytes(%s, 'k', 'order.created', %b, 'application/octet-stream')", aggregate, body)
    [record] = consume(f"outbox.event.{aggregate}").take(1)
    assert record.value == body


def test_what_was_rolled_back_is_never_published(db, kafka, consume, aggregate):
    db.kafka_sink("main", kafka)
    with db.connect(autocommit=False) as connection:
        enqueue = f"SELECT outbox.enqueue('{aggregate}', 'k', %s, '{{}}')"
        connection.execute(enqueue, ["rolled back"])
        connection.rollback()
        connection.execute(enqueue, ["first"])
        connection.execute("SAVEPOINT s")
        connection.execute(enqueue, ["in the savepoint"])
        connection.execute("ROLLBACK TO s")
        connection.execute(enqueue, ["last"])
        kept = [row[0] for row in connection.execute("SELECT id::text FROM outbox.events ORDER BY position")]
        connection.commit()
    # One key uses one partition, so a wrongly published event would precede the last one.
    assert [r.id for r in consume(f"outbox.event.{aggregate}").take(2)] == kept
    wait_until(lambda: delivered(db), 10, "the rows to leave")
    assert db.value("SELECT count(*) FROM outbox.events") == 0


def test_an_event_is_not_sent_before_its_commit(db, kafka, consume, aggregate):
    db.kafka_sink("main", kafka)
    with db.connect(autocommit=False) as early:
        early.execute(f"SELECT outbox.enqueue('{aggregate}', 'early', 'e', '{{}}')")
        db.enqueue(aggregate, "late")
        consumer = consume(f"outbox.event.{aggregate}")
        assert [r.key for r in consumer.take(1)] == ["late"]
        assert consumer.quiet(1.5) == []  # longer than the safety poll
        early.commit()
    # Its position precedes that of the event that was sent; it must be found all the same.
    assert [r.key for r in consumer.take(1)] == ["early"]


# ---- webhooks ----------------------------------------------------------------------------------------------------


def test_webhook_is_received_and_its_signature_verifies(db, receiver):
    db.webhook_sink("crm", receiver, SECRET)
    event = db.enqueue("Order", "42", "order.created", '{"total": 10.5, "who": "Zoë"}')
    wait_until(receiver.accepted, 20, "the webhook")
    [delivery] = receiver.deliveries
    assert delivery.verified
    assert read_by_node("standardwebhooks", [delivery], SECRET) == ["ok"]
    assert delivery.id == event
    assert delivery.headers["content-type"].startswith("application/json")
    body = delivery.json()
    assert (body["id"], body["type"], body["data"]) == (event, "order.created", {"total": 10.5, "who": "Zoë"})
    wait_until(lambda: delivered(db), 10, "the row to leave")


def test_a_tampered_webhook_does_not_verify(db, receiver):
    """Shows that the verifiers used above can fail."""
    db.webhook_sink("crm", receiver, SECRET)
    db.enqueue("Order", "42")
    wait_until(receiver.accepted, 20, "the webhook")
    [delivery] = receiver.deliveries
    delivery.body = delivery.body.replace(b"order.created", b"order.deleted")
    assert read_by_node("standardwebhooks", [delivery], SECRET)[0].startswith("bad")


# ---- both, order, bulk -------------------------------------------------------------------------------------------


def test_an_event_goes_to_every_sink_that_takes_it(db, kafka, consume, aggregate, receiver):
    db.kafka_sink("main", kafka)
    db.webhook_sink("crm", receiver, SECRET, events="order.created")
    created = db.enqueue(aggregate, "1", "order.created")
    deleted = db.enqueue(aggregate, "1", "order.deleted")
    assert [r.id for r in consume(f"outbox.event.{aggregate}").take(2)] == [created, deleted]
    wait_until(lambda: delivered(db), 20, "both sinks")
    assert [d.id for d in receiver.accepted()] == [created]


def test_events_of_a_key_stay_in_order(db, kafka, consume, aggregate, receiver):
    """2,000 events of 50 keys in 40 transactions, to both kinds of sink."""
    db.kafka_sink("main", kafka)
    db.webhook_sink("crm", receiver, SECRET)
    with db.connect(autocommit=False) as connection:
        for batch in range(40):
            for n in range(batch * 50, batch * 50 + 50):
                connection.execute("SELECT outbox.enqueue(%s, %s::text, 'order.changed', jsonb_build_object('n', %s::int, 'key', %s::text))",
                                   [aggregate, f"key-{n * 7 % 50}", n, f"key-{n * 7 % 50}"])
            connection.commit()
    by_key: dict[str, list[int]] = defaultdict(list)
    for record in consume(f"outbox.event.{aggregate}").take(2000, 60):
        by_key[record.key].append(json.loads(record.value)["n"])
    assert len(by_key) == 50 and all(len(ns) == 40 and ns == sorted(ns) for ns in by_key.values())

    wait_until(lambda: len(receiver.accepted()) >= 2000, 60, lambda: f"2,000 webhooks, got {len(receiver.accepted())}")
    by_key.clear()
    for delivery in receiver.accepted():
        data = delivery.json()["data"]
        by_key[data["key"]].append(data["n"])
    assert len(by_key) == 50 and all(len(ns) == 40 and ns == sorted(ns) for ns in by_key.values())


def test_concurrent_writers_leave_nothing_behind(db, kafka, consume, aggregate):
    """A thousand times per second, positions are taken in one order and committed in another: no row may stay behind
    the cursor, and the events of a key, serialized by the aggregate's row lock, arrive in order."""
    db.kafka_sink("main", kafka)
    db.sql("CREATE TABLE aggregates (id text PRIMARY KEY, version integer NOT NULL)")
    db.sql("INSERT INTO aggregates SELECT 'key-' || n, 0 FROM generate_series(0, 39) n")

    def write(writer: int) -> None:
        with db.connect(autocommit=False) as connection:
            for n in range(500):
                key = f"key-{(n * 11 + writer * 5) % 40}"
                connection.execute("WITH changed AS (UPDATE aggregates SET version = version + 1 WHERE id = %s RETURNING version) "
                                   "SELECT outbox.enqueue(%s, %s::text, 'changed', to_jsonb(version)) FROM changed",
                                   [key, aggregate, key])
                connection.commit()

    with ThreadPoolExecutor(8) as writers:
        list(writers.map(write, range(8)))
    by_key: dict[str, list[int]] = defaultdict(list)
    for record in consume(f"outbox.event.{aggregate}").take(4000, 30):
        by_key[record.key].append(int(record.value))
    assert all(versions == list(range(1, len(versions) + 1)) for versions in by_key.values())
    wait_until(lambda: delivered(db), 10, "the rows to leave")


def test_plain_inserts_of_any_shape(db, kafka, consume, aggregate):
    """One row, several rows, INSERT ... SELECT, COPY, and the explicit NULLs of ORMs."""
    db.kafka_sink("main", kafka)
    columns = "outbox.events (aggregate_type, aggregate_id, event_type, payload)"
    [(returned,)] = db.sql(f"INSERT INTO {columns} VALUES (%s, 'one', 'e', '1') RETURNING id::text", aggregate)
    db.sql(f"INSERT INTO {columns} VALUES (%s, 'two', 'e', '2'), (%s, 'three', 'e', '3')", aggregate, aggregate)
    db.sql(f"INSERT INTO {columns} SELECT %s, 'select', 'e', to_jsonb(n) FROM generate_series(4, 103) n", aggregate)
    db.sql("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload, headers, status, sink, available_at)"
           " VALUES (NULL, %s, 'nulls', 'e', '104', NULL, NULL, NULL, NULL)", aggregate)
    with db.connect() as connection, connection.cursor().copy(f"COPY {columns} FROM STDIN") as copy:
        for n in range(105, 205):
            copy.write_row((aggregate, "copy", "e", str(n)))
    records = consume(f"outbox.event.{aggregate}").take(204)
    assert sorted(int(r.value) for r in records) == list(range(1, 205))
    assert next(r for r in records if r.key == "one").id == returned
    for key, first in (("select", 4), ("copy", 105)):
        assert [int(r.value) for r in records if r.key == key] == list(range(first, first + 100))
    assert len({r.id for r in records}) == 204


def test_new_topics_hold_every_event(db, kafka, consume, aggregate):
    """The first requests to partitions that are just being created fail; later successes must not hide the failed
    events."""
    db.kafka_sink("main", kafka)
    topics = [f"{aggregate}{n}" for n in range(8)]
    for _ in range(30):
        db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) "
               "SELECT t, 'key-' || n, 'e' FROM unnest(%s::text[]) t, generate_series(1, 10) n", topics)
    wait_until(lambda: delivered(db), 60, "the rows to leave")
    for topic in topics:
        assert len({r.id for r in consume(f"outbox.event.{topic}").take(300)}) == 300


def test_an_event_without_a_sink_waits_for_one(db, kafka, consume, aggregate):
    event = db.enqueue(aggregate, "1")
    assert db.sql("SELECT id::text, sink, status FROM outbox.events") == [(event, None, "PENDING")]
    db.kafka_sink("main", kafka)
    assert [r.id for r in consume(f"outbox.event.{aggregate}").take(1)] == [event]
    wait_until(lambda: delivered(db), 10, "the row to leave")


def test_a_scheduled_event_waits_for_its_time(db, kafka, consume, aggregate):
    db.kafka_sink("main", kafka)
    db.sql("SELECT outbox.enqueue(%s, 'later', 'e', '{}', available_at => clock_timestamp() + interval '6 s')", aggregate)
    due = db.value("SELECT extract(epoch FROM available_at)::float8 FROM outbox.events")
    db.enqueue(aggregate, "now")
    records = consume(f"outbox.event.{aggregate}").take(2)
    at = {r.key: r.at for r in records}
    assert set(at) == {"now", "later"} and at["later"] >= due


def test_an_application_needs_only_the_right_to_insert(db, pg, kafka, consume, aggregate):
    db.kafka_sink("main", kafka)
    with db.role(f"app_{db.name}") as role:
        db.sql(f"GRANT USAGE ON SCHEMA outbox TO {role}; GRANT INSERT ON outbox.events TO {role}")
        with pg.connect(db.name, user=role) as app:
            [(event,)] = app.execute("SELECT outbox.enqueue(%s, 'k', 'e', '{}')::text", [aggregate]).fetchall()
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                app.execute("SELECT * FROM outbox.events")
        assert [r.id for r in consume(f"outbox.event.{aggregate}").take(1)] == [event]
