"""A whole sink is down: no event is lost, no attempts are spent, and the other sink continues."""

import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import HANG, OK, SECRET, status


def check_outage(db, down: str, other: str, enqueue, other_has_all, mend) -> None:
    sent = [enqueue(n) for n in range(20)]
    wait_until(lambda: db.state(down) == "circuit open", 30, "the circuit to open")
    age = db.sink("oldest_pending_age", down)[0]
    wait_until(lambda: db.sink("oldest_pending_age", down)[0].total_seconds() > age.total_seconds() + 1, 10, "the age to rise")
    assert db.sink("last_error", down)[0]
    sent += [enqueue(n) for n in range(20, 40)]
    wait_until(lambda: other_has_all(sent), 20, f"{other} to go on")
    assert db.sql("SELECT count(*), max(attempts), max(blocked_by) FROM outbox.events_pending WHERE sink = %s", down) == [(40, 0, None)]
    status, detail = db.sql(f"SELECT status, detail FROM outbox.doctor() WHERE \"check\" = 'sink {down}'")[0]
    assert status == "error" and "circuit open" in detail

    mend()
    wait_until(lambda: db.state(down) in ("idle", "delivering"), 15, "the circuit to close")
    wait_until(lambda: db.sink("pending", down)[0] == 0, 15, "the backlog to drain")
    assert db.sink("oldest_pending_age", down)[0] is None
    return sent


@pytest.fixture
def both(db, kafka, receiver):
    db.kafka_sink("main", kafka)
    db.webhook_sink("crm", receiver, SECRET)
    return db


@pytest.mark.librdkafka
def test_broker_down(both, kafka, consume, aggregate, receiver):
    both.enqueue(aggregate, "0", "warm")
    wait_until(lambda: both.pending() == 0, 30, "the first event")
    kafka.stop()
    try:
        sent = check_outage(both, "main", "crm", lambda n: both.enqueue(aggregate, "k", "order.changed"),
                            lambda ids: set(ids) <= {d.id for d in receiver.accepted()}, kafka.start)
    finally:
        kafka.start()
    records = consume(f"outbox.event.{aggregate}").take(41)
    assert [r.id for r in records if r.key == "k"] == sent


DOWN = [status(503, body=b"maintenance"), status(429), HANG]


@pytest.mark.parametrize("answer", DOWN, ids=["503", "429", "timeout"])
def test_endpoint_fails_for_everybody(db, receiver, answer):
    """Many keys in a row fail: the sink is down, and no attempts are spent, not even of the events that showed it."""
    db.webhook_sink("crm", receiver, SECRET, timeout="1s", retention="1d", max_attempts="1")
    receiver.mode = answer
    db.sql("SELECT count(outbox.enqueue('Order', n::text, 'order.changed', to_jsonb(n))) FROM generate_series(1, 300) n")
    wait_until(lambda: db.state() == "circuit open", 30, "the circuit to open")
    for n in (1, 2):  # while it is probed
        seen = len(receiver.deliveries)
        wait_until(lambda: len(receiver.deliveries) > seen, 20, "a probe")
    assert db.sql("SELECT status, count(*), max(attempts) FROM outbox.events GROUP BY 1") == [("PENDING", 300, 0)]
    seen = len(receiver.deliveries)
    assert seen < 100, "only what was under way, and probes"

    receiver.mode = OK
    wait_until(lambda: db.pending() == 0, 30, "the backlog to drain")
    assert db.sql("SELECT status, count(*), max(attempts) FROM outbox.events GROUP BY 1") == [("SENT", 300, 0)]
    assert len({d.id for d in receiver.accepted()}) == 300


def test_one_key_or_a_refusal_of_events_is_no_outage(db, receiver):
    """One key that always fails, and many events that the endpoint refuses with 400, among others that it takes."""
    db.webhook_sink("crm", receiver, SECRET, retry="20ms", max_attempts="3", concurrency="1")
    log_start = db.pg.log.stat().st_size
    answers = {"one": status(500), "bad": status(400)}
    receiver.mode = lambda d: answers.get(d.json()["data"]["kind"], OK)
    for n in range(15):
        if n < 5:  # 15 failures
            db.enqueue("Order", "one", payload='{"kind": "one"}')
        db.enqueue("Order", f"bad {n}", payload='{"kind": "bad"}')
        db.enqueue("Order", f"good {n}", payload='{"kind": "good"}')
    wait_until(lambda: db.pending() == 0, 60, "dead letters")
    assert db.sql("SELECT count(*), min(attempts), max(attempts) FROM outbox.events WHERE status = 'FAILED'") == [(20, 3, 3)]
    assert "circuit opened" not in db.pg.logged(log_start)


@pytest.mark.parametrize("code", [400, 421, 422])
def test_an_endpoint_that_refuses_every_event_is_down(db, receiver, code):
    """A proxy without its site, or with an expired certificate: the answer blames the event, and every event gets it."""
    receiver.mode = status(code, body=b"no such site")
    db.webhook_sink("crm", receiver, SECRET, retry="20ms", concurrency="4")
    db.sql("SELECT outbox.enqueue('Order', n, 'x', '{}') FROM generate_series(1, 300) n")
    wait_until(lambda: db.state() == "circuit open", 30, lambda: db.sql("SELECT * FROM outbox.sinks"))
    assert f"HTTP {code}: no such site" in db.value("SELECT last_error FROM outbox.sinks")
    seen = len(receiver.deliveries)
    wait_until(lambda: len(receiver.deliveries) > seen + 5, 20, "more probes")
    assert db.sql("SELECT status, count(*), max(attempts) FROM outbox.events GROUP BY 1") == [("PENDING", 300, 0)]
    receiver.mode = OK
    wait_until(lambda: db.pending() == 0, 30, "the backlog to drain")
    assert len({d.id for d in receiver.accepted()}) == 300


def test_a_gateway_that_refuses_one_event_in_an_outage_ends_it_for_no_other(db, receiver):
    db.webhook_sink("crm", receiver, SECRET, retry="20ms")
    receiver.mode = lambda d: status(400) if d.json()["data"]["kind"] == "bad" else status(503)
    bad = db.enqueue("Order", "bad", payload='{"kind": "bad"}')
    db.sql("SELECT outbox.enqueue('Order', n, 'x', '{\"kind\": \"good\"}') FROM generate_series(1, 50) n")
    wait_until(lambda: db.state() == "circuit open", 30, lambda: db.sql("SELECT * FROM outbox.sinks"))
    refused = lambda: sum(d.json()["data"]["kind"] == "bad" for d in receiver.deliveries)  # noqa: E731
    log_start, seen = db.pg.log.stat().st_size, refused()
    wait_until(lambda: refused() > seen, 60, "the event that is refused to be among the probes")
    assert "circuit closed" not in db.pg.logged(log_start)
    assert db.value("SELECT max(attempts) FROM outbox.events WHERE id <> %s", bad) == 0
    receiver.mode = lambda d: status(400) if d.id == bad else OK
    wait_until(lambda: db.pending() == 0, 60, lambda: db.sql("SELECT * FROM outbox.sinks"))
    assert db.sql("SELECT id::text FROM outbox.events WHERE status = 'FAILED'") == [(bad,)]


def test_a_key_that_always_fails_is_all_there_is_after_an_outage(db, receiver):
    """Nothing else can show that the endpoint is back, so attempts are spent, and what waited behind the event arrives."""
    db.webhook_sink("crm", receiver, SECRET, retry="100ms", max_attempts="2")
    receiver.stop()
    bad, good = (db.enqueue("Order", "1") for _ in range(2))
    wait_until(lambda: db.state() == "circuit open", 30, "the circuit to open")
    receiver.mode = lambda delivery: status(500) if delivery.id == bad else OK
    receiver.start()
    wait_until(lambda: [d.id for d in receiver.accepted()] == [good], 60, lambda: db.sql("SELECT * FROM outbox.sinks"))
    assert db.sql("SELECT id::text, attempts FROM outbox.events WHERE status = 'FAILED'") == [(bad, 2)]


def test_endpoint_refuses_connections(both, kafka, consume, aggregate, receiver):
    both.enqueue(aggregate, "0", "warm")
    wait_until(lambda: both.pending() == 0, 30, "the first event")
    consumer, seen = consume(f"outbox.event.{aggregate}"), set()

    def kafka_has(ids) -> bool:
        record = consumer.poll(1)
        if record:
            seen.add(record.id)
        return seen >= set(ids)

    receiver.stop()
    sent = check_outage(both, "crm", "main", lambda n: both.enqueue(aggregate, "k", "order.changed"), kafka_has, receiver.start)
    assert [d.id for d in receiver.accepted()][1:] == sent
