"""More failing events than a round reads. A worker that starts, or takes shards over, reads them beside deliveries, and lets no event of their
keys pass."""

import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import SECRET
from test_dead_letters import MORTAL, endpoint, sends_before_all_is_read, stays_so, switch, wait_numbers, wait_recorded  # noqa: F401

KEYS = ("k1", "k4500", "k8999", "k9000")


def failing(db, count: int) -> None:
    """As a restore inserts them: number 1 of the keys k1, k2, …, to be tried again in an hour."""
    db.sql(f"""INSERT INTO outbox.events (aggregate_type, aggregate_id, partition_key, event_type, payload, position, sink, origin, attempts,
                                          last_attempt_at, last_error, available_at)
               SELECT 'Order', key, key, 'order.changed', jsonb_build_object('key', key, 'n', 1), nextval('outbox.events_position'), 'crm',
                      (SELECT origin FROM outbox.events_pending LIMIT 1), 1, now(), 'HTTP 500', now() + interval '1 hour'
               FROM generate_series(1, {count}) AS n CROSS JOIN LATERAL (SELECT 'k' || n AS key) AS k""")


@pytest.fixture
def many_failing(db, endpoint, switch):  # noqa: F811
    """No worker runs, and there are so many failing events."""
    def make(count: int) -> None:
        db.webhook_sink("crm", endpoint.receiver, SECRET, **MORTAL)
        switch(False)
        db.send("other", 1)
        failing(db, count)
    return make


def make_due(db) -> None:
    db.sql("UPDATE outbox.events SET available_at = now() WHERE status = 'PENDING' AND partition_key = ANY (%s) AND attempts > 0", list(KEYS))


def test_events_behind_failing_ones_wait_from_the_first_round_on(db, endpoint, many_failing, switch):  # noqa: F811
    many_failing(9000)
    for key in KEYS:
        db.send(key, 2)
    switch(True)
    wait_numbers(endpoint, "other", [1])
    wait_until(lambda: db.sql("SELECT blocked FROM outbox.sinks") == [(len(KEYS),)], 60, "the others to be held")
    stays_so(db)
    assert [endpoint.numbers(key) for key in KEYS] == [[]] * len(KEYS)
    make_due(db)
    for key in KEYS:
        wait_numbers(endpoint, key, [1, 2])


def test_events_behind_failing_ones_wait_while_shards_are_handed_over(db, pg, endpoint, many_failing, switch, setting):  # noqa: F811
    many_failing(9000)
    switch(True)
    wait_numbers(endpoint, "other", [1])
    for workers in ("4", "1", "3"):
        setting("outbox.workers", workers)
        for key in KEYS:
            db.send(key, int(workers) + 10)
        db.send("other", int(workers) + 10)
    wait_numbers(endpoint, "other", [1, 14, 11, 13])
    wait_until(lambda: db.sql("SELECT blocked FROM outbox.sinks") == [(3 * len(KEYS),)], 60, "the others to be held")
    assert [endpoint.numbers(key) for key in KEYS] == [[]] * len(KEYS)
    make_due(db)
    for key in KEYS:
        wait_numbers(endpoint, key, [1, 14, 11, 13])


@pytest.mark.timing
def test_a_start_does_not_wait_until_all_failing_events_are_read(db, endpoint, many_failing, switch):  # noqa: F811
    many_failing(100_000)
    sends_before_all_is_read(db, endpoint, switch)
