"""What an endpoint's response means for the event: when it is retried, when it is given up, and what its row
contains."""

import gzip
import os
import signal
import time
from email.utils import formatdate

import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import EMPTY, HANG, OK, SECRET, Open, Status, redirect, slow, status


class Paths:
    """The receiver, with a response for each path, and so for each sink."""

    def __init__(self, db, receiver):
        self.db, self.receiver, self.answers = db, receiver, {}
        receiver.mode = lambda delivery: self.answers.get(delivery.path, OK)

    def sink(self, name: str, answer, **options: str) -> str:
        """Creates a sink with one event. Returns the event's id."""
        self.answers[f"/{name}"] = answer
        self.db.webhook_sink(name, self.receiver.url.replace("/hook", f"/{name}"), **options)
        return self.db.enqueue("Order", "1", sink=name)

    def tries(self, name: str) -> int:
        return sum(delivery.path == f"/{name}" for delivery in self.receiver.deliveries)


@pytest.fixture
def paths(db, plain):
    return Paths(db, plain)


NEXT = """SELECT sink, attempts, extract(epoch FROM available_at - last_attempt_at)::float8, last_error
          FROM outbox.events_pending WHERE attempts > 0"""
FAILURES = """CREATE TABLE public.failures (sink text, delay float8, error text);
CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO public.failures VALUES (NEW.sink, extract(epoch FROM NEW.available_at - NEW.last_attempt_at), NEW.last_error); RETURN NULL; END $$;
CREATE TRIGGER note AFTER UPDATE ON outbox.events_pending FOR EACH ROW WHEN (NEW.attempts = 1 AND OLD.attempts = 0) EXECUTE FUNCTION public.note()"""
STEP = (5, 5.5)  # the first delay of the default schedule
SLOW = (60, 66)


def test_a_row_has_the_whole_answer_up_to_8_kb(db, paths):
    """Views and the log have the beginning of it."""
    answers = {"whole": "é" * 3500, "longest": "é" * 4091, "cut": "é" * 20000, "blank": "\n" * 5001 + "é" * 20000}
    start = db.pg.log.stat().st_size
    for name, body in answers.items():
        paths.sink(name, status(400, body=body.encode()), max_attempts="1")
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events_failed") == len(answers), 20, lambda: db.sql("SELECT * FROM outbox.events"))
    error = dict(db.sql("SELECT sink, last_error FROM outbox.events_failed"))
    assert error["whole"] == "HTTP 400: " + answers["whole"]
    assert error["longest"] == "HTTP 400: " + answers["longest"] and len(error["longest"].encode()) == 8192
    assert error["cut"] == "HTTP 400: " + "é" * 4088 + " [cut]" and len(error["cut"].encode()) == 8192
    assert error["blank"] == "HTTP 400: " + "é" * 1595 + " [cut]"  # of 8192 bytes
    wait_until(lambda: db.pg.logged(start).count("dead letter after 1 attempt: HTTP 400: éé") == len(answers), 20, lambda: db.pg.logged(start))
    assert max(len(line.encode()) for line in db.pg.logged(start).splitlines() if "dead letter after" in line) < 1200
    assert db.value("SELECT max(octet_length(last_error)) FROM outbox.sinks") < 512
    assert db.value("SELECT max(octet_length(detail)) FROM outbox.doctor()") < 2000


def test_when_each_answer_is_followed_by_another_attempt(db, paths):
    """(The first attempts are noted as they fail: some sinks try again before the last one is made.)"""
    db.sql(FAILURES)
    date = formatdate(time.time() + 600, usegmt=True)
    expected = {
        "s408": (status(408), STEP), "s425": (status(425), STEP), "s500": (status(500), STEP), "s503": (status(503), STEP),
        "s409": (status(409), STEP), "s400": (status(400), STEP), "s413": (status(413), STEP),
        "s401": (status(401), SLOW), "s403": (status(403), SLOW), "s404": (status(404), SLOW),
        "s302": (redirect(paths.receiver.url), SLOW), "s308": (redirect(paths.receiver.url, 308), SLOW),
        "seconds": (status(503, 120), (120, 120)), "date": (status(429, date), (300, 600)),  # less the time since it was written
        "capped": (status(502, 200000), (3600, 3600)), "negative": (status(504, -5), STEP),
        "malformed": (status(429, "soon"), STEP), "absurd": (status(429, 1700000000), STEP), "past": (status(503, formatdate(0, usegmt=True)), STEP),
    }
    for name, (answer, _) in expected.items():
        paths.sink(name, answer, method="PUT" if name == "s308" else "POST")
    assert paths.sink("s204", status(204))
    rows = wait_until(lambda: len(rows := db.sql("TABLE public.failures")) == len(expected) and rows, 20, lambda: f"the attempts, got {db.sql(NEXT)}")
    for name, delay, error in rows:
        least, most = expected[name][1]
        assert least <= delay <= most, (name, delay)
        assert error.startswith("HTTP "), (name, error)
    wait_until(lambda: db.pending() == len(expected), 10, "the one that was delivered to leave")
    assert not paths.tries("hook"), "a redirect was followed"
    assert {paths.tries(name) for name, (_, delay) in expected.items() if delay != STEP} == {1}


def test_what_is_refused_as_such_is_a_dead_letter_soon(db, paths):
    quick = {"retry": "0"}
    for name, answer in (("s400", status(400)), ("s413", status(413)), ("s422", status(422))):
        paths.sink(name, answer, **quick)
    paths.sink("once", status(400), max_attempts="1", **quick)
    paths.sink("keyed", status(422, body=b"other body"), idempotency_key="true", **quick)
    conflict = iter([status(409)] * 5)
    paths.receiver.mode = lambda d: next(conflict, OK) if d.path == "/conflict" else paths.answers[d.path]
    paths.sink("conflict", None, idempotency_key="true", **quick)
    dead = lambda: dict(db.sql("SELECT sink, attempts FROM outbox.events WHERE status = 'FAILED'"))  # noqa: E731
    wait_until(lambda: len(dead()) == 5 and db.pending() == 0, 20, lambda: f"the dead letters, got {dead()}")
    assert dead() == {"s400": 3, "s413": 3, "s422": 3, "once": 1, "keyed": 1}
    assert {name: paths.tries(name) for name in (*dead(), "conflict")} == {**dead(), "conflict": 6}


def test_other_failures_do_not_count_as_refusals(db, paths):
    answers = iter([status(503), status(503), status(400), status(400), OK])
    paths.receiver.mode = lambda d: next(answers)
    paths.sink("crm", None, retry="0")
    wait_until(lambda: db.pending() == 0, 20, lambda: db.sql("SELECT attempts, last_error FROM outbox.events"))
    assert db.value("SELECT count(*) FROM outbox.events WHERE status = 'FAILED'") == 0


def test_an_endpoint_that_refuses_everything_is_paused_and_no_attempt_is_spent(db, paths):
    first = paths.sink("crm", status(401, body=b"who are you"), timeout="10s")
    wait_until(lambda: db.sql(NEXT), 10, "the first failure")
    events = [first, *(db.enqueue("Order", str(n)) for n in range(2, 13))]
    wait_until(lambda: db.value("SELECT state FROM outbox.sinks") == "circuit open", 10, "the circuit to open")
    [(error, dead)] = db.sql("SELECT last_error, dead FROM outbox.sinks")
    assert "HTTP 401: who are you" in error and dead == 0
    wait_until(lambda: db.value("SELECT in_flight FROM outbox.sinks") == 0, 10, "what was queued to come back")
    assert db.sql("SELECT count(*), sum(attempts) FROM outbox.events_pending") == [(12, 1)]
    paths.answers["/crm"] = OK
    db.set_sink("crm", timeout="11s")  # at once, without waiting for a probe
    db.sql("UPDATE outbox.events SET available_at = now() WHERE attempts > 0")
    wait_until(lambda: db.pending() == 0, 10, "the events")
    assert sorted(d.id for d in paths.receiver.accepted()) == sorted(events)


@pytest.mark.parametrize("code", [401, 503])
def test_few_keys_are_judged_as_well_as_many(db, paths, code):
    """Three keys, and nothing succeeds: no attempt is spent, and all are sent when the outage is over."""
    events = [paths.sink("crm", status(code), retry="500ms")]
    events += db.sql("SELECT outbox.enqueue('Order', n, 'x', '{}') FROM generate_series(2, 3) n")
    wait_until(lambda: db.value("SELECT state FROM outbox.sinks") == "circuit open", 10, "the circuit to open")
    wait_until(lambda: paths.tries("crm") >= 4, 20, "a probe")
    assert db.sql("SELECT dead, pending FROM outbox.sinks") == [(0, 3)]
    assert db.value("SELECT max(attempts) FROM outbox.events_pending") <= 1, "what failed before the others did"
    paths.answers["/crm"] = OK
    wait_until(lambda: db.pending() == 0, 20, "all three")


def test_after_an_outage_what_has_spent_an_attempt_goes_at_once(db, paths):
    """Only the first failure counts as the event's; its next attempt would be in an hour."""
    first = paths.sink("crm", status(503), retry="1h")
    wait_until(lambda: db.sql(NEXT), 10, "the first failure")
    assert db.sql("SELECT state, pending FROM outbox.sinks") == [("failing", 1)]
    events = [first, db.enqueue("Order", "2"), db.enqueue("Order", "3")]
    wait_until(lambda: db.value("SELECT state FROM outbox.sinks") == "circuit open", 10, "the circuit to open")
    paths.answers["/crm"] = OK
    wait_until(lambda: db.pending() == 0, 20, lambda: f"all three, still waiting: {db.sql(NEXT)}")
    assert sorted(d.id for d in paths.receiver.accepted()) == sorted(events)
    assert db.sql("SELECT state, last_error_at < now() FROM outbox.sinks") == [("idle", True)]


def keep_connections(db, receiver, n: int) -> None:
    """Leaves that many kept connections to the receiver, which closes each one at its next request."""
    receiver.mode = HANG
    for key in range(n):
        db.enqueue("Order", str(key))
    wait_until(lambda: len(receiver.deliveries) == n, 20, "requests at the same time")
    receiver.mode = EMPTY
    receiver.release()
    wait_until(lambda: db.pending() == 0, 20, "their recording")


def test_an_attempt_is_one_request(db, receiver):
    """The endpoint closes every connection without an answer. On a kept connection that costs no attempt and is tried again at once, on a new
    connection, where it costs one."""
    db.webhook_sink("crm", receiver, SECRET, concurrency="8", retry="1h")
    keep_connections(db, receiver, 8)
    event = db.enqueue("Order", "x")
    wait_until(lambda: db.sql(NEXT), 20, "the end of the attempt")
    assert sum(delivery.id == event for delivery in receiver.deliveries) == 2
    assert db.sql("SELECT reason, publish_failures_total FROM outbox.failure_metrics") == [("connection", 2)], "each request is a failure of its own"
    assert db.sql(NEXT)[0][1] == 1


def test_a_kept_connection_that_breaks_costs_no_attempt(db, receiver):
    """A rate limit counts the next request too."""
    db.webhook_sink("crm", receiver, SECRET, rate_limit="1/2s", max_attempts="1", retention="1h")
    keep_connections(db, receiver, 1)
    event = db.enqueue("Order", "x")
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events WHERE last_error = 'a kept connection broke before an answer'") == 1, 20, "the failure")
    receiver.mode = OK
    wait_until(lambda: db.pending() == 0, 20, "delivery")
    assert db.sql("SELECT attempts, status FROM outbox.events WHERE id = %s", event) == [(0, "SENT")]
    first, second = (delivery.at for delivery in receiver.deliveries if delivery.id == event)
    assert second - first > 1.8


def unanswered(db) -> int:
    return db.value("SELECT unanswered_events_total FROM outbox.sink_metrics WHERE sink = 'crm'")


def test_events_that_may_have_arrived_twice_are_counted(db, receiver):
    """The endpoint takes three requests and closes their connections: it may have processed them."""
    receiver.mode = status(500)
    db.webhook_sink("crm", receiver, SECRET, retry="100ms")
    db.enqueue("Order", "answered")
    wait_until(lambda: receiver.deliveries, 20, "an answer")
    receiver.mode = EMPTY
    events = [db.enqueue("Order", str(key)) for key in range(3)]
    wait_until(lambda: {delivery.id for delivery in receiver.deliveries} >= set(events), 20, "each event's request")
    receiver.mode = OK
    wait_until(lambda: db.pending() == 0, 30, "delivery")
    without = sum(delivery.answered is None for delivery in receiver.deliveries)
    assert without >= 3
    wait_until(lambda: unanswered(db) == without, 10, lambda: f"{without} to be counted: {unanswered(db)}")
    assert db.value("SELECT unanswered FROM outbox.sinks") == without


def test_what_a_worker_leaves_in_flight_may_arrive_twice(db, receiver):
    """The endpoint is slower than outbox.shutdown_timeout; the next worker sends the events again."""
    receiver.mode = HANG
    db.webhook_sink("crm", receiver, SECRET)
    for key in range(3):
        db.enqueue("Order", str(key))
    wait_until(lambda: len(receiver.deliveries) == 3, 20, "requests at the same time")
    worker = db.value("SELECT pid FROM outbox.workers WHERE database = current_database()")
    db.sql("SELECT pg_terminate_backend(%s)", worker)
    wait_until(lambda: db.value("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", worker) == 0, 20, "the end of the worker")
    receiver.mode = OK
    receiver.release()
    wait_until(lambda: db.pending() == 0, 30, "delivery")
    assert len(receiver.deliveries) == 6
    assert unanswered(db) == 3


def test_poisonous_events_stop_no_sink_that_takes_others(db, paths):
    paths.receiver.mode = lambda d: status(500) if d.headers["x-key"].startswith("bad") else OK
    db.webhook_sink("crm", paths.receiver, retry="100ms", max_attempts="4", headers='{"X-Key": "${aggregate_id}"}')
    db.sql("SELECT outbox.enqueue('Order', 'bad' || n % 3, 'x', '{}') FROM generate_series(1, 3) n")
    good = 0

    def dead() -> int:  # other events are delivered meanwhile
        nonlocal good
        good += 1
        db.enqueue("Order", f"good{good}")
        return db.value("SELECT dead FROM outbox.sinks")

    wait_until(lambda: dead() == 3, 30, lambda: f"the dead letters, got {db.sql('SELECT state, dead FROM outbox.sinks')}")
    wait_until(lambda: db.pending() == 0, 10, "the good ones")
    assert db.value("SELECT state FROM outbox.sinks") == "idle"


def test_a_hundred_events_that_always_fail_make_room_for_another_key(db, paths):
    """They use up the probes, so that the endpoint seems to be down: none of them may stay first in the queue for
    ever."""
    paths.receiver.mode = lambda d: status(500) if d.headers["x-key"].startswith("bad") else OK
    db.webhook_sink("crm", paths.receiver, retry="1s", max_attempts="10000", concurrency="4", headers='{"X-Key": "${aggregate_id}"}')
    db.sql("SELECT outbox.enqueue('Order', CASE WHEN n % 5 = 0 THEN 'bad' ELSE 'good' END || n, 'x', '{}') FROM generate_series(1, 600) n")
    wait_until(lambda: db.pending() == 120, 60, "the good ones")
    event = db.enqueue("Order", "good")
    wait_until(lambda: event in [delivery.id for delivery in paths.receiver.accepted()], 60,
               lambda: db.sql("SELECT state, pending, failing FROM outbox.sinks"))


def test_the_answer_stands_in_the_row_made_safe(db, plain):
    token = "tok-4711-geheim"
    echo = b"\x1b[31mno\x00 \xff\r\n" + token.encode() + b" <b>" + b"x" * (1 << 20)
    plain.mode = Status(500, body=echo)
    db.webhook_sink("crm", plain)
    db.create_mapping("crm", {"token": token})
    db.enqueue("Order", "1")
    [(_, _, _, error)] = wait_until(lambda: db.sql(NEXT), 10, "the failure")
    assert error.startswith("HTTP 500: [31mno \ufffd *** <b>xxx") and error.isprintable()
    assert 8100 < len(error.encode()) <= 8192 and error.endswith(" [cut]")
    assert len(plain.deliveries) == 1


def test_a_success_whose_body_never_ends_is_delivered(db, rig):
    """At the end of its head: not when the timeout is over."""
    with rig.receiver(mode=Open()) as receiver:
        db.webhook_sink("crm", receiver, timeout="1min")
        for n in range(30):
            db.enqueue("Order", "1", payload=f'{{"n": {n}}}')
        wait_until(lambda: db.value("SELECT count(*) FROM outbox.events_pending") == 0, 60, lambda: db.sql("SELECT * FROM outbox.sinks"))
        assert [d.json()["data"]["n"] for d in receiver.deliveries] == list(range(30))


def test_a_compressed_answer_is_named(db, paths):
    """It was not asked for; its bytes would be no text."""
    body = gzip.compress(b"the field total is missing")
    paths.sink("gzip", Status(422, {"Content-Encoding": "gzip"}, body), max_attempts="1")
    paths.sink("plain", Status(422, {"Content-Encoding": "identity"}, b"no total"), max_attempts="1")
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events_failed") == 2, 20, lambda: db.sql("SELECT * FROM outbox.events"))
    assert dict(db.sql("SELECT sink, last_error FROM outbox.events_failed")) == {
        "gzip": "HTTP 422: (a body in the encoding gzip, which was not asked for)", "plain": "HTTP 422: no total"}


def test_answers_that_came_while_the_worker_stood_still(db, plain):
    """Their time has run out when the process goes on; they are read first."""
    held = []
    plain.mode = lambda delivery: held.append(delivery) or slow(2)
    db.webhook_sink("crm", plain, timeout="3s", concurrency="20", max_attempts="1")
    ids = [db.enqueue("Order", str(n)) for n in range(20)]
    wait_until(lambda: len(held) == 20, 20, "the requests")
    worker = db.value("SELECT pid FROM outbox.workers WHERE database = current_database()")
    os.kill(worker, signal.SIGSTOP)
    try:
        wait_until(lambda: len(plain.accepted()) == 20, 20, "the answers")
        stopped = time.monotonic()
        wait_until(lambda: time.monotonic() - stopped > 6, 10, "the time of the requests to run out")
    finally:
        os.kill(worker, signal.SIGCONT)
    wait_until(lambda: db.pending() == 0, 20, "the recording")
    assert db.sink("delivered, retried, dead") == (20, 0, 0)
    assert sorted(d.id for d in plain.deliveries) == sorted(ids)


def test_a_request_that_hung_while_the_worker_stood_still(db, plain):
    """It ends by its time limit, although that was lifted while the answers were read."""
    plain.mode = HANG
    db.webhook_sink("crm", plain, timeout="2s", max_attempts="1")
    db.enqueue("Order", "1")
    wait_until(lambda: len(plain.deliveries) == 1, 20, "the request")
    worker = db.value("SELECT pid FROM outbox.workers WHERE database = current_database()")
    os.kill(worker, signal.SIGSTOP)
    stopped = time.monotonic()
    wait_until(lambda: time.monotonic() - stopped > 5, 10, "its time to run out")
    os.kill(worker, signal.SIGCONT)
    wait_until(lambda: "does not answer the request" in (db.sink("last_error")[0] or ""), 10, lambda: f"the end of the request, not {db.sink('last_error')}")
