"""Refusals by a topic or broker, with a real broker: which events wait, which do not, and in which order."""

import json

import pytest
from outbox_rig import wait_until

LIMIT = 20_000


@pytest.fixture
def topic(kafka, aggregate):
    """A topic for this test's events. It accepts no record over LIMIT."""
    name = f"outbox.event.{aggregate}"
    kafka.create_topic(name, config={"max.message.bytes": str(LIMIT)})
    return name


def states(db):
    return db.sql("SELECT payload->>'n', status, attempts, blocked_by, available_at - now(), last_error FROM outbox.events ORDER BY position")


def numbers(records) -> list[int]:
    return [json.loads(record.value)["n"] for record in records]


def test_events_that_failed_before_their_sink_was_ordered_keep_their_order_now(db, kafka, consume, aggregate, topic):
    """Each event has failed once, so that fact does not tell which ones are sent alone. The broker refuses the
    second: no event overtakes it."""
    db.kafka_sink("k", kafka, ordered="false", partition="99", retry="1h", batch_num_messages="1", compression_type="none")
    db.sql("""SELECT count(outbox.enqueue(%s, 'k', 'e', jsonb_build_object('n', n, 'x', repeat('x', CASE n WHEN 2 THEN %s ELSE 1 END))))
              FROM generate_series(1, 5) AS n""", aggregate, 2 * LIMIT)
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events_pending WHERE attempts = 1") == 5, 20, lambda: states(db))
    db.sql("ALTER SERVER k OPTIONS (SET ordered 'true', ADD on_dead_letter 'block', DROP partition)")
    db.sql("UPDATE outbox.events SET available_at = now()")
    wait_until(lambda: db.sink("dead, pending, blocked", "k") == (1, 3, 3), 20, lambda: states(db))
    assert db.value("SELECT payload->>'n' FROM outbox.events WHERE status = 'FAILED'") == "2"
    consumer = consume(topic)
    assert numbers(consumer.take(1)) == [1]
    db.sql("DELETE FROM outbox.events WHERE status = 'FAILED'")
    assert numbers(consumer.take(3)) == [3, 4, 5]


def test_many_that_their_topic_refuses_stop_no_other_topic(db, kafka, consume, aggregate, topic):
    """A thousand refused events, every second one: each becomes a dead letter after one attempt, and no other event
    spends one."""
    other = f"outbox.event.{aggregate}-other"
    kafka.create_topic(other)
    db.kafka_sink("k", kafka, compression_type="none", retry="1h")
    db.sql("""SELECT count(outbox.enqueue(%s, (n %% 500)::text, 'e', jsonb_build_object('n', n, 'x', repeat('x', CASE n %% 2 WHEN 0 THEN %s ELSE 1 END)))),
                     count(outbox.enqueue(%s, n::text, 'e', jsonb_build_object('n', n))) FROM generate_series(1, 1000) AS n""",
           aggregate, LIMIT + 1000, f"{aggregate}-other")
    wait_until(lambda: db.sink("dead, pending, retried", "k") == (500, 0, 0), 60, lambda: db.sql("SELECT * FROM outbox.sinks"))
    assert db.sql("SELECT DISTINCT attempts, (payload->>'n')::int % 2 FROM outbox.events WHERE status = 'FAILED'") == [(1, 0)]
    assert sorted(numbers(consume(topic).take(500))) == list(range(1, 1001, 2))
    assert sorted(numbers(consume(other).take(1000))) == list(range(1, 1001))


def test_an_error_that_quotes_a_long_key_cuts_no_character(db, kafka, aggregate):
    """The error is a dead letter's, and a dump of half a character cannot be restored."""
    key = "a" + "é" * 60
    db.kafka_sink("k", kafka)
    db.sql("SELECT outbox.pause('k')")
    db.enqueue(aggregate, key)
    db.sql("ALTER SERVER k OPTIONS (ADD key_format 'base64')")
    db.sql("SELECT outbox.resume('k')")
    wait_until(lambda: db.sink("dead", "k") == (1,), 20, lambda: states(db))
    [(error, _)] = db.sql("SELECT last_error, upper(last_error) FROM outbox.events")
    assert f'the key is "{key[:50]}".' in error
    with db.restored(f"{db.name}_restored") as restored:
        assert restored.value("SELECT last_error FROM outbox.events") == error
