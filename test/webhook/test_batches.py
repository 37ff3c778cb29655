"""Several events in one request: its forms, read by the official libraries, order per key, the refused event among
others, and an endpoint that breaks, hangs and recovers."""

import json
import threading
import time
from dataclasses import dataclass, field

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import EMPTY, HANG, OK, SECRET, Delivery, status
from outbox_rig.traffic import check
from standardwebhooks import Webhook

ORDERS = "SELECT outbox.enqueue('Order', 'k' || n %% %s, 'order.paid', jsonb_build_object('key', n %% %s, 'n', n)) FROM generate_series(1, %s) n"


@dataclass
class Books:
    """What the endpoint has accepted, event by event."""

    events: list[dict] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def note(self, delivery: Delivery) -> None:
        if delivery.accepted():
            self.events += delivery.json()
            self.sizes.append(len(delivery.json()))

    def numbers(self) -> list[int]:
        return [event["data"]["n"] for event in self.events]

    def must_be_in_order(self) -> None:
        """Of each key, every event for the first time after its predecessors; then it may come again."""
        numbered = [(event["id"], (event["data"]["key"], event["data"]["n"])) for event in self.events]
        check({number: event for event, number in numbered}, numbered)


@pytest.fixture
def books(receiver) -> Books:
    books = Books()
    receiver.on_delivery = books.note
    return books


def pause_and_enqueue(db: Database, sink: str, keys: int, events: int) -> None:
    """So that the sink finds all of them at once."""
    db.sql("SELECT outbox.pause(%s)", sink)
    db.sql(ORDERS, keys, keys, events)
    db.sql("SELECT outbox.resume(%s)", sink)


def test_a_request_carries_many_events_and_one_signature(db, receiver, books):
    db.webhook_sink("crm", receiver, SECRET, batch="50", concurrency="2")
    pause_and_enqueue(db, "crm", 7, 500)
    wait_until(lambda: db.pending() == 0, 30, lambda: f"delivery, got {len(books.events)}")
    assert sorted(books.numbers()) == list(range(1, 501))
    books.must_be_in_order()
    assert max(books.sizes) == 50
    assert len(books.sizes) < 40, "7 keys fill requests of 50 only by runs of a key"
    assert all(delivery.verified for delivery in receiver.deliveries)
    ids = [delivery.id for delivery in receiver.deliveries]
    assert len(set(ids)) == len(ids)
    assert not set(ids) & {event["id"] for event in books.events}, "the name of a request is that of no event"
    assert set(books.events[0]) == {"id", "type", "timestamp", "data"}


def test_one_event_is_a_list_too(db, receiver, books):
    db.webhook_sink("crm", receiver, SECRET, batch="50", retention="1d")
    event = db.enqueue("Order", "1", "x", '{"n": 1, "key": 1}')
    wait_until(lambda: db.pending() == 0, 10, "delivery")
    assert [e["id"] for e in books.events] == [event]
    shown = db.sql("SELECT part, name, value FROM outbox.preview(%s, 'crm')", event)
    parts = {(part, name): value for part, name, value in shown}
    assert json.loads(parts["body", None])[0]["type"] == "x"
    assert parts["header", "Content-Type"] == "application/json"


def test_ndjson_has_an_event_in_each_line(db, plain):
    """The library verifies JSON only, unless it is told not to read it."""
    receiver = plain
    db.webhook_sink("log", receiver, SECRET, batch="50, ndjson", format="raw",
                    body='{"id": ${id},\n "line": "${aggregate_id}", "data": ${payload}}')
    db.sql("SELECT outbox.enqueue('Order', E'a\\nb' || n, 'x', jsonb_build_object('n', n)) FROM generate_series(1, 20) n")
    wait_until(lambda: db.pending() == 0, 10, "delivery")
    for delivery in receiver.deliveries:
        assert delivery.headers["content-type"] == "application/x-ndjson"
        assert delivery.body.endswith(b"\n")
        Webhook(SECRET).verify(delivery.body, delivery.headers, json_parse=False)
    lines = [json.loads(line) for delivery in receiver.deliveries for line in delivery.body.decode().splitlines()]
    assert sorted(line["data"]["n"] for line in lines) == list(range(1, 21))
    assert all(line["line"].startswith("a\nb") for line in lines)


def test_cloudevents_have_their_batch_format(db, receiver):
    db.webhook_sink("ce", receiver, SECRET, batch="50", format="cloudevents-structured")
    event = db.sql("SELECT outbox.enqueue_bytes('Order', '1', 'x', '\\xff00', content_type => 'image/png')")[0][0]
    db.enqueue("Order", "2")
    wait_until(lambda: db.pending() == 0, 10, "delivery")
    found = {}
    for delivery in receiver.deliveries:
        assert delivery.headers["content-type"] == "application/cloudevents-batch+json; charset=utf-8"
        found |= {each["id"]: each for each in delivery.json()}
    assert found[str(event)]["data_base64"] == "/wA=" and found[str(event)]["specversion"] == "1.0"
    assert len(found) == 2


def test_a_batch_waits_for_more_events(db, receiver, books):
    db.webhook_sink("crm", receiver, SECRET, batch="10, 1MB, 3s")
    for n in range(1, 11):
        db.sql("SELECT outbox.enqueue('Order', %s, 'x', jsonb_build_object('key', %s, 'n', %s))", str(n % 3), n % 3, n)
    wait_until(lambda: len(books.events) == 10, 20, "delivery")
    assert books.sizes == [10]
    books.must_be_in_order()


def test_a_batch_has_no_more_bytes_than_allowed(db, receiver, books):
    db.webhook_sink("crm", receiver, SECRET, batch="1000, 10kB", concurrency="1")
    db.sql("SELECT outbox.pause('crm')")
    db.sql("SELECT outbox.enqueue('Order', 'k' || n, 'x', jsonb_build_object('key', n, 'n', n, 'text', repeat('x', CASE n WHEN 7 THEN 20000 ELSE 1000 END))) "
           "FROM generate_series(1, 30) n")
    db.sql("SELECT outbox.resume('crm')")
    wait_until(lambda: db.pending() == 0, 20, "delivery")
    assert sorted(books.numbers()) == list(range(1, 31))
    large = [delivery for delivery in receiver.deliveries if len(delivery.body) > 10 * 1024]
    assert [len(delivery.json()) for delivery in large] == [1], "the event that is larger goes alone"
    assert max(books.sizes) >= 7


@pytest.mark.parametrize("answer", [status(400), status(413), status(500), EMPTY], ids=["400", "413", "500", "breaks"])
def test_the_event_that_is_refused_is_found_and_the_others_pay_nothing(db, receiver, books, answer):
    """With 500 one event of each request that fails pays, and goes at once when others pass."""
    receiver.mode = lambda delivery: answer if b'"bad"' in delivery.body else OK
    db.webhook_sink("crm", receiver, SECRET, batch="100", retry="100ms", max_attempts="3", concurrency="2")
    db.sql("SELECT outbox.pause('crm')")
    db.sql("SELECT outbox.enqueue('Order', 'k' || n, CASE n WHEN 77 THEN 'bad' ELSE 'good' END, jsonb_build_object('key', n, 'n', n)) FROM generate_series(1, 200) n")
    db.sql("SELECT outbox.resume('crm')")
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events_failed") == 1, 30, lambda: db.sql("SELECT * FROM outbox.sinks"))
    wait_until(lambda: db.pending() == 0, 10, "the others")
    assert sorted(books.numbers()) == [n for n in range(1, 201) if n != 77]
    assert db.sql("SELECT event_type, attempts FROM outbox.events_failed") == [("bad", 3)]


def test_behind_a_refused_event_its_key_waits(db, receiver, books):
    """Events 10, 20, ... of key 0 are one run, and 50 is refused for a while."""
    refuses = threading.Event()
    refuses.set()
    receiver.mode = lambda delivery: status(422) if refuses.is_set() and b'"n": 50,' in delivery.body else OK
    db.webhook_sink("crm", receiver, SECRET, batch="100", retry="200ms", max_attempts="1000")
    pause_and_enqueue(db, "crm", 10, 100)
    wait_until(lambda: len(books.events) >= 94, 20, lambda: sorted(books.numbers()))
    assert not {50, 60, 70, 80, 90, 100} & set(books.numbers())
    refuses.clear()
    wait_until(lambda: db.pending() == 0, 20, "delivery")
    assert sorted(set(books.numbers())) == list(range(1, 101))
    books.must_be_in_order()


@pytest.mark.parametrize("down", [status(503), HANG, EMPTY], ids=["503", "hangs", "breaks"])
def test_an_outage_is_seen_and_costs_few_events_an_attempt(db, receiver, books, down):
    receiver.mode = down
    db.webhook_sink("crm", receiver, SECRET, batch="100", timeout="500ms", retry="1s", concurrency="4")
    db.sql(ORDERS, 300, 300, 600)
    wait_until(lambda: db.sql("SELECT FROM outbox.sinks WHERE state = 'circuit open' AND last_error <> ''"), 20, lambda: db.sql("SELECT * FROM outbox.sinks"))
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events_pending WHERE attempts > 0") <= 20, 5, "few attempts")
    receiver.release()
    receiver.mode = OK
    wait_until(lambda: db.pending() == 0, 40, lambda: f"delivery after the outage, got {len(set(books.numbers()))}")
    assert sorted(set(books.numbers())) == list(range(1, 601))
    books.must_be_in_order()
    assert db.value("SELECT count(*) FROM outbox.events_failed") == 0


def test_nothing_is_lost_when_worker_and_endpoint_die(db, receiver, books):
    db.webhook_sink("crm", receiver, SECRET, batch="50, 1MB, 5ms", concurrency="4", timeout="2s")
    enqueued = 0
    for round in range(6):
        db.sql("SELECT outbox.enqueue('Order', 'k' || n %% 20, 'x', jsonb_build_object('key', n %% 20, 'n', n)) FROM generate_series(%s::int, %s) n", enqueued + 1, enqueued + 500)
        enqueued += 500
        if round % 2:
            receiver.stop()
            receiver.start()
        else:
            db.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'outbox worker'")
        time.sleep(0.05)  # so that the next events meet it in every state
    wait_until(lambda: db.pending() == 0, 60, lambda: f"delivery, got {len(set(books.numbers()))} of {enqueued}")
    assert sorted(set(books.numbers())) == list(range(1, enqueued + 1))
    books.must_be_in_order()


def test_the_probe_sends_a_list_of_one_test_event(db, receiver):
    db.webhook_sink("crm", receiver, SECRET, batch="50, 1MB, 1s")
    steps = db.sql("SELECT step, ok, message FROM outbox.probe('crm', send => true)")
    assert all(ok for _, ok, _ in steps), steps
    [delivery] = receiver.deliveries
    assert delivery.headers["outbox-probe"] == "true" and [each["type"] for each in delivery.json()] == ["outbox.probe"]
    receiver.mode = status(400, body=b"expected an object")
    hints = [hint for ok, hint in db.sql("SELECT ok, hint FROM outbox.probe('crm', send => true)") if not ok]
    assert "batch" in hints[0]


def test_an_event_of_bytes_is_refused_when_it_is_enqueued(db, receiver):
    db.webhook_sink("crm", receiver, SECRET, batch="50")
    with pytest.raises(psycopg.Error) as refused:
        db.sql("SELECT outbox.enqueue_bytes('Order', '1', 'x', '\\xff00', content_type => 'image/png')")
    assert "batch" in refused.value.diag.message_detail and "cloudevents-structured" in refused.value.diag.message_hint


def test_each_event_of_a_batch_has_its_acknowledgement(db, receiver, books):
    db.webhook_sink("crm", receiver, SECRET, batch="50", retention="1d")
    pause_and_enqueue(db, "crm", 20, 20)
    wait_until(lambda: db.pending() == 0, 10, "delivery")
    assert db.value("SELECT count(*) FROM outbox.events WHERE status = 'SENT' AND acknowledgement LIKE 'HTTP 200 (%'") == 20
