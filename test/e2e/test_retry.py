"""Failing events: which events wait, which continue, what the row contains, and what a user may do meanwhile."""

import time
from collections import Counter

import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import OK, SECRET, status

QUICK = {"retry": "50ms..200ms", "max_attempts": "1000"}
PATIENT = {"retry": "1h", "max_attempts": "1000"}


class Endpoint:
    """The receiver, which refuses events whose payload's key is in `bad`."""

    def __init__(self, receiver, answer=None):
        self.receiver, self.bad = receiver, set()
        self.answer = answer or status(500, body=b"no such customer")
        receiver.mode = lambda delivery: self.answer if key_of(delivery) in self.bad else OK

    def keys(self) -> list[str]:
        return [key_of(delivery) for delivery in self.receiver.accepted()]

    def numbers(self, key: str) -> list[int]:
        return self.receiver.numbers(key)

    def tries(self, key: str) -> Counter:
        return Counter(d.json()["data"]["n"] for d in list(self.receiver.deliveries) if key_of(d) == key)


def key_of(delivery) -> str:
    return delivery.json()["data"]["key"]


@pytest.fixture
def endpoint(receiver):
    return Endpoint(receiver)


def head(db, key: str, column: str = "attempts"):
    """A column of the key's first pending row."""
    return db.value(f"SELECT {column} FROM outbox.events_pending WHERE partition_key = %s ORDER BY position LIMIT 1", key)


def test_only_the_failing_key_waits(db, endpoint):
    db.webhook_sink("crm", endpoint.receiver, SECRET, **QUICK)
    endpoint.bad = {"bad"}
    for n in range(1, 4):
        db.send("bad", n)
        db.send(f"good-{n}", n)
        db.send("good", n)
    wait_until(lambda: len(endpoint.keys()) == 6, 20, "the other keys")
    assert "bad" not in endpoint.keys() and endpoint.numbers("good") == [1, 2, 3]

    wait_until(lambda: head(db, "bad") >= 3, 20, "some attempts")
    rows = db.sql("SELECT position, attempts, last_error, available_at > last_attempt_at, blocked_by"
                  " FROM outbox.events_pending ORDER BY position")
    assert len(rows) == 3
    assert "HTTP 500" in rows[0][2] and "no such customer" in rows[0][2]
    assert rows[0][3] and rows[0][4] is None
    assert [row[1:] for row in rows[1:]] == [(0, None, None, rows[0][0])] * 2
    assert set(endpoint.tries("bad")) == {1}
    wait_until(lambda: db.value("SELECT retried FROM outbox.sinks") >= 3, 10, lambda: db.sql("SELECT * FROM outbox.sinks"))  # after its commit
    assert db.sql("SELECT pending, blocked, dead FROM outbox.sinks") == [(3, 2, 0)]
    assert "HTTP 500" in db.value("SELECT last_error FROM outbox.sinks")
    assert db.sql("""SELECT status FROM outbox.doctor() WHERE "check" = 'sink crm'""") == [("warning",)]

    endpoint.bad = set()
    wait_until(lambda: len(endpoint.numbers("bad")) == 3, 10, "the key to go on")
    db.send("bad", 4)
    wait_until(lambda: len(endpoint.numbers("bad")) == 4, 10, "a later event")
    assert endpoint.numbers("bad") == [1, 2, 3, 4]
    db.wait_empty(10)


def test_a_burst_behind_a_failing_head_keeps_its_order(db, endpoint):
    """More rows than one read of blocked rows returns, and more rows arrive while they drain."""
    db.webhook_sink("crm", endpoint.receiver, SECRET, **QUICK)
    endpoint.bad = {"bad"}
    db.send("bad", 0)
    wait_until(lambda: head(db, "bad") >= 1, 10, "a failure")
    insert = ("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload)"
              " SELECT 'Order', 'bad', 'e', jsonb_build_object('key', 'bad', 'n', n) FROM generate_series(%s::int, %s::int) n")
    db.sql(insert, 1, 600)
    endpoint.bad = set()
    db.sql(insert, 601, 800)
    wait_until(lambda: len(endpoint.numbers("bad")) >= 801, 40, lambda: f"801 events, got {len(endpoint.numbers('bad'))}")
    assert endpoint.numbers("bad") == list(range(801))
    db.wait_empty(10)


def test_a_dead_letter_keeps_the_whole_error_and_lets_its_key_go_on(db, endpoint):
    db.webhook_sink("crm", endpoint.receiver, SECRET, retry="20ms..50ms", max_attempts="3")
    endpoint.answer = status(500, body=b"reason one, " + b"and so on " * 10000)
    endpoint.bad = {"bad"}
    failing = db.send("bad", 1)
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events WHERE status = 'FAILED'") == 1, 20, "the dead letter")
    [(event, attempts, error, last, sent)] = db.sql(
        "SELECT id::text, attempts, last_error, last_attempt_at, sent_at FROM outbox.events WHERE status = 'FAILED'")
    assert (event, attempts, sent) == (failing, 3, None)
    assert error.startswith("HTTP 500: reason one, and so on") and len(error) < 10000
    assert last is not None
    assert len(endpoint.receiver.deliveries) == 3

    endpoint.bad = set()
    db.send("bad", 2)
    wait_until(lambda: endpoint.numbers("bad") == [2], 10, "the key to go on")
    db.wait_empty(10)
    wait_until(lambda: db.sql("SELECT dead, dead_total, delivered, pending FROM outbox.sinks") == [(1, 1, 1, 0)], 10,
               lambda: db.sql("SELECT * FROM outbox.sinks"))


def test_a_dead_letter_releases_those_that_waited_for_it(db, endpoint):
    db.webhook_sink("crm", endpoint.receiver, SECRET, retry="50ms..100ms", max_attempts="4")
    endpoint.receiver.mode = lambda d: status(500) if d.json()["data"]["n"] == 1 else OK
    for n in range(1, 6):
        db.send("bad", n)
    wait_until(lambda: len(endpoint.numbers("bad")) == 4, 10, "the others")
    assert endpoint.numbers("bad") == [2, 3, 4, 5] and endpoint.tries("bad")[1] == 4
    db.wait_empty(10)


NEXT = ("SELECT attempts, last_error, extract(epoch FROM available_at - last_attempt_at)::float8 * 1000,"
        " last_attempt_at FROM outbox.events_pending")


@pytest.mark.parametrize("policy, delays, least, most", [
    ("20min*2, 1h*2", [1200000, 1200000, 3600000, 3600000, 3600000], 1, 1.1),
    ("1h..3h", [3600000, 7200000, 10800000, 10800000, 10800000], 0.5, 1),
])
def test_every_step_is_in_the_row_up_to_the_dead_letter(db, endpoint, policy, delays, least, most):
    """The test does not wait for hours: an UPDATE makes each attempt due now."""
    db.webhook_sink("crm", endpoint.receiver, SECRET, retry=policy, max_attempts="6")
    endpoint.bad = {"k"}
    db.send("k", 1)
    previous = None
    for n, delay in enumerate(delays, 1):
        wait_until(lambda: head(db, "k") == n, 20, f"attempt {n}")
        [(attempts, error, next_in, last)] = db.sql(NEXT)
        assert delay * least <= next_in <= delay * most, f"after attempt {n}"
        assert error == "HTTP 500: no such customer"
        assert previous is None or last > previous
        previous = last
        assert len(endpoint.receiver.deliveries) == n
        db.sql("UPDATE outbox.events SET available_at = now()")
    wait_until(lambda: db.value("SELECT attempts FROM outbox.events WHERE status = 'FAILED'") == 6, 20, "the dead letter")
    assert db.pending() == 0 and len(endpoint.receiver.deliveries) == 6


def test_delays_that_are_over_when_they_are_recorded(db, endpoint):
    """A failure for which the endpoint may be to blame is recorded 250 ms late."""
    db.webhook_sink("crm", endpoint.receiver, SECRET, retry="1ms", max_attempts="1000")
    endpoint.bad = {"bad"}
    db.send("bad", 1)
    wait_until(lambda: head(db, "bad") >= 5, 30, "some attempts")
    endpoint.bad = set()
    db.wait_empty(10)


def test_retry_after_is_honoured(db, endpoint):
    db.webhook_sink("crm", endpoint.receiver, SECRET, **QUICK)
    endpoint.answer = status(503, retry_after=2)
    endpoint.receiver.mode = lambda d: endpoint.answer if len(endpoint.receiver.deliveries) == 1 else OK
    db.send("k", 1)
    wait_until(endpoint.receiver.accepted, 10, "the second attempt")
    first, second = endpoint.receiver.deliveries
    assert second.at - first.at >= 1.9
    db.wait_empty(10)


def test_a_restart_keeps_held_keys_in_order(db, pg, endpoint):
    db.webhook_sink("crm", endpoint.receiver, SECRET, **QUICK)
    endpoint.bad = {"bad"}
    for n in range(1, 4):
        db.send("bad", n)
    wait_until(lambda: db.value("SELECT count(blocked_by) FROM outbox.events_pending") == 2, 10, "held rows")
    db.disconnect()
    pg.restart()
    tries = endpoint.tries("bad")[1]
    wait_until(lambda: endpoint.tries("bad")[1] > tries, 20, "the next worker's attempts")
    db.send("bad", 4)
    db.send("good", 1)
    wait_until(lambda: endpoint.numbers("good"), 10, "another key")
    assert set(endpoint.tries("bad")) == {1}
    endpoint.bad = set()
    wait_until(lambda: len(endpoint.numbers("bad")) == 4, 10, "the key to go on")
    assert endpoint.numbers("bad") == [1, 2, 3, 4]
    db.wait_empty(10)


# ---- what a person does to pending rows --------------------------------------------------------------------------


@pytest.fixture
def failing_head(db, endpoint):
    """Event 1 of the key has failed and waits for an hour; 2 and 3 wait behind it."""
    db.webhook_sink("crm", endpoint.receiver, SECRET, **PATIENT)
    endpoint.bad = {"k"}
    for n in range(1, 4):
        db.send("k", n)
    wait_until(lambda: head(db, "k") == 1 and db.value("SELECT count(blocked_by) FROM outbox.events_pending") == 2, 10, "held rows")
    endpoint.bad = set()
    return endpoint


FIRST = "position = (SELECT min(position) FROM outbox.events_pending)"
LAST = "position = (SELECT max(position) FROM outbox.events_pending)"


@pytest.mark.parametrize("change, numbers, left", [
    pytest.param(f"DELETE FROM outbox.events WHERE {FIRST}", [2, 3], [], id="the failing head is deleted"),
    pytest.param(f"UPDATE outbox.events SET available_at = now() WHERE {FIRST}", [1, 2, 3], [], id="the failing head is due now"),
    pytest.param(f"UPDATE outbox.events SET partition_key = 'other' WHERE {FIRST}", [2, 3], [("other", 1)], id="the failing head gets another key"),
    pytest.param(f"UPDATE outbox.events SET partition_key = 'free' WHERE {LAST}", [3], [("k", 1), ("k", 0)], id="a held row gets another key"),
])
def test_a_row_of_a_failing_key_is_changed(db, failing_head, change, numbers, left):
    """What no longer waits arrives at once and in order; the other rows stay."""
    db.sql(change)
    wait_until(lambda: len(failing_head.numbers("k")) == len(numbers), 2, "the key to go on")
    assert failing_head.numbers("k") == numbers
    wait_until(lambda: db.sql("SELECT partition_key, attempts FROM outbox.events_pending ORDER BY position") == left, 2, "the others to be recorded")


def test_another_sink_for_pending_rows(db, other, failing_head):
    db.webhook_sink("other", other, SECRET, aggregates="Nothing")
    db.sql("UPDATE outbox.events SET sink = 'other', available_at = NULL")
    wait_until(lambda: len(other.accepted()) == 3, 2, "the other endpoint to get them")
    assert [d.json()["data"]["n"] for d in other.accepted()] == [1, 2, 3]
    db.wait_empty(10)
    assert failing_head.keys() == []


def test_available_at_of_a_scheduled_event(db, endpoint):
    db.webhook_sink("crm", endpoint.receiver, SECRET, **QUICK)
    for n in (1, 2):
        db.sql("SELECT outbox.enqueue('Order', 'k', 'e', jsonb_build_object('key', 'k', 'n', %s::int),"
               " available_at => clock_timestamp() + interval '1 hour')", n)
    db.send("k", 3)
    wait_until(lambda: endpoint.numbers("k") == [3], 10, "the one that is due: a schedule holds up nobody")
    wait_until(lambda: db.sql("SELECT pending, scheduled, blocked, oldest_pending_age FROM outbox.sinks") == [(2, 2, 0, None)],
               2, "it to be recorded")
    db.sql(f"UPDATE outbox.events SET available_at = NULL WHERE {FIRST}")
    wait_until(lambda: endpoint.numbers("k") == [3, 1], 2, "the first")
    db.sql("UPDATE outbox.events SET available_at = now()")
    wait_until(lambda: endpoint.numbers("k") == [3, 1, 2], 2, "the second")
    db.wait_empty(10)


def test_scheduled_events_arrive_when_due(db, endpoint, setting):
    """Not before, and not only at the next safety poll."""
    setting("outbox.poll_interval", "1h")
    db.webhook_sink("crm", endpoint.receiver, SECRET, **QUICK)
    for n, seconds in ((1, 7), (2, 6)):
        db.sql("SELECT outbox.enqueue('Order', 'k', 'e', jsonb_build_object('key', 'k', 'n', %s::int),"
               " available_at => clock_timestamp() + %s * interval '1 s')", n, seconds)
    due = dict(db.sql("SELECT (payload->>'n')::int, extract(epoch FROM available_at)::float8 FROM outbox.events_pending"))
    db.send("k", 3)
    wait_until(lambda: len(endpoint.keys()) == 3, 20, "all")
    arrived = {d.json()["data"]["n"]: d.at for d in endpoint.receiver.accepted()}
    assert set(arrived) == {1, 2, 3} and all(arrived[n] >= due[n] for n in due)
    db.wait_empty(10)


def test_a_row_that_a_person_has_locked_waits_and_its_key_with_it(db, endpoint):
    """Other keys continue. The endpoint is down while the rows are enqueued, so that they are locked before they can
    be claimed."""
    db.webhook_sink("crm", endpoint.receiver, SECRET, **QUICK)
    endpoint.receiver.stop()
    db.send("probe", 1)  # the probe of the open circuit
    wait_until(lambda: db.value("SELECT state FROM outbox.sinks") == "circuit open", 10, "an open circuit")
    db.send("k", 1)
    db.send("k", 2)
    db.send("other", 1)
    with db.connect(autocommit=False) as person:
        person.execute("SELECT FROM outbox.events WHERE partition_key = 'k' ORDER BY position LIMIT 1 FOR UPDATE")
        endpoint.receiver.start()
        wait_until(lambda: endpoint.keys() == ["probe", "other"], 15, "the others")
        db.send("k", 3)
        db.send("other", 2)
        wait_until(lambda: endpoint.numbers("other") == [1, 2], 5, "more of the others")
        time.sleep(1.5)  # longer than the safety poll
        assert endpoint.numbers("k") == []
        person.rollback()
    wait_until(lambda: len(endpoint.numbers("k")) == 3, 2, "the key")
    assert endpoint.numbers("k") == [1, 2, 3]
    db.wait_empty(10)


def test_a_late_commit_of_a_key_that_drains(db, endpoint):
    """In one round the key is released and a late event of it is found: a later event of the key stays behind it."""
    db.webhook_sink("crm", endpoint.receiver, SECRET, **PATIENT)
    endpoint.bad = {"k"}
    db.send("k", 1)
    wait_until(lambda: head(db, "k") == 1, 20, "the failure")
    with db.connect(autocommit=False) as late:
        late.execute("""SELECT outbox.enqueue('Order', 'k'::text, 'order.changed', '{"key": "k", "n": 2}'::jsonb)""")
        db.send("other", 1)
        wait_until(lambda: endpoint.keys() == ["other"], 20, "the cursor to pass it")
        endpoint.receiver.stop()
        db.send("other", 2)
        wait_until(lambda: db.value("SELECT state FROM outbox.sinks") == "circuit open", 20, "an endpoint that is down")
        db.sql("DELETE FROM outbox.events WHERE status = 'PENDING'")  # the key drains, but no event fits in flight
        wait_until(lambda: not db.sql("SELECT FROM outbox_internal.rescan_queue"), 20, "the worker to let the key go")
    db.send("k", 3)
    endpoint.bad = set()
    endpoint.receiver.start()
    wait_until(lambda: len(endpoint.numbers("k")) == 2, 20, "both")
    assert endpoint.numbers("k") == [2, 3]


def test_a_sink_that_becomes_ordered_waits_for_an_event_that_failed_before(db, endpoint):
    """Its scan skips many rows of a paused sink, and with them the failing event, which has a time of its own."""
    db.webhook_sink("crm", endpoint.receiver, SECRET, events="order.*", ordered="false", **PATIENT)
    db.webhook_sink("other", "https://localhost:1", events="item.*")
    db.sql("SELECT outbox.pause('other')")
    endpoint.bad = {"bad"}
    db.send("bad", 1)
    wait_until(lambda: head(db, "bad") == 1, 20, "the failure")
    db.sql("SELECT outbox.pause('crm')")
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) SELECT 'Item', n::text, 'item.made' FROM generate_series(1, 11000) AS n")
    db.send("bad", 2)
    db.send("good", 1)
    endpoint.bad = set()
    db.set_sink("crm", ordered="true")
    db.sql("SELECT outbox.resume('crm')")
    wait_until(lambda: endpoint.numbers("good") == [1], 20, "the other key")
    assert endpoint.numbers("bad") == []
