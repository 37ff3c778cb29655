"""Under load the worker claims the events of several commits together; the last events, and later ones, are not
delayed."""

import pytest
from outbox_rig import wait_until

pytestmark = pytest.mark.slow

SOON = 10
EVENTS = 20_000


def test_the_last_event_of_a_load_needs_no_poll(db, kafka, consume, aggregate, setting):
    setting("outbox.poll_interval", "1h")
    db.kafka_sink("main", kafka)
    db.sql(f"""
        CREATE PROCEDURE load() LANGUAGE plpgsql AS $$
        BEGIN
          SET synchronous_commit = off;
          FOR n IN 1..{EVENTS} LOOP
            PERFORM outbox.enqueue('{aggregate}', (n % 100)::text, 'e', to_jsonb(n));
            COMMIT;
          END LOOP;
        END $$""")
    consumer, sent = consume(f"outbox.event.{aggregate}"), 0
    for _ in range(3):
        db.sql("CALL load()")
        sent += EVENTS
        wait_until(lambda: db.pending() == 0, SOON, lambda: f"{db.pending()} events to leave")
        for _ in range(20):
            db.enqueue(aggregate, "single")
            wait_until(lambda: db.pending() == 0, SOON, "a single event to leave", interval=0.001)
            sent += 1
    records = consumer.take(sent, timeout=60)
    assert len({record.id for record in records}) == sent
    for key in {record.key for record in records}:
        ids = [record.id for record in records if record.key == key]
        assert ids == sorted(ids), key
