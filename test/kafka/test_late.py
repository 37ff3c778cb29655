"""Events that are sent long after they were enqueued, to a topic that refuses or deletes old records."""

import time

import pytest
from outbox_rig import wait_until


@pytest.fixture
def topic(kafka, aggregate):
    """A topic for this test's events. It refuses records that are older than an hour."""
    name = f"outbox.event.{aggregate}"
    kafka.create_topic(name, config={"message.timestamp.before.max.ms": "3600000", "retention.ms": "86400000"})
    return name


def enqueue_late(db, aggregate):
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, created_at) VALUES (%s, 'k', 'e', now() - interval '2 days')", aggregate)


def test_a_topic_takes_what_is_sent_late_as_new(db, kafka, consume, aggregate, topic):
    db.kafka_sink("k", kafka)
    enqueue_late(db, aggregate)
    wait_until(lambda: db.pending() == 0, 30, lambda: db.complaints())
    assert db.value("SELECT count(*) FROM outbox.events WHERE status = 'FAILED'") == 0, db.value("SELECT last_error FROM outbox.events")
    [record] = consume(topic).take(1)
    assert record.timestamp > (time.time() - 3600) * 1000, "retention would delete it soon"
    assert db.doctor("advice k timestamp") is None


def test_a_record_that_is_too_old_says_which_option_is_the_cause(db, kafka, consume, aggregate, topic):
    db.kafka_sink("k", kafka, timestamp="created_at")
    status, detail, hint = db.doctor("advice k timestamp")
    assert status == "ok" and "retention.ms" in detail
    enqueue_late(db, aggregate)
    wait_until(lambda: db.sink("dead", "k") == (1,), 30, lambda: db.sql("SELECT status, last_error FROM outbox.events"))
    error = db.value("SELECT last_error FROM outbox.events")
    assert "message.timestamp.before.max.ms" in error and "set option timestamp of the sink to 'now'" in error
    db.paste(hint)
    assert db.value("SELECT outbox.redrive(id, sink) FROM outbox.events WHERE status = 'FAILED'")
    assert len(consume(topic).take(1)) == 1


def test_a_replay_says_that_a_topic_may_delete_old_records(db, kafka, aggregate):
    db.kafka_sink("old", kafka, timestamp="created_at", retention="1d")
    db.kafka_sink("new", kafka, retention="1d")
    db.enqueue(aggregate, "k")
    wait_until(lambda: db.pending() == 0, 30, lambda: db.complaints())
    notices = []
    with db.connect() as session:
        session.add_notice_handler(lambda notice: notices.append((notice.message_primary, notice.message_detail)))
        assert session.execute("SELECT outbox.replay('new', '1 hour')").fetchone() == (1,) and notices == []
        assert session.execute("SELECT outbox.replay('old', '1 hour')").fetchone() == (1,)
    [(said, detail)] = notices
    assert said == 'events of the sink "old" are sent with the times at which they were enqueued' and "retention.ms" in detail
