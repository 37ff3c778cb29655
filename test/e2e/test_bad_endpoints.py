"""Endpoints that send nonsense: no event is lost, and the worker's memory stays small."""

import pytest
from outbox_rig import wait_until
from outbox_rig.process import private_memory
from outbox_rig.receiver import EMPTY, HUGE, OK, SECRET, garbage, redirect, status

QUICK = {"retry": "50ms..200ms", "max_attempts": "1000"}
MB = 1 << 20


def worker(db) -> int:
    return db.value("SELECT pid FROM outbox.workers WHERE database = %s", db.name)


@pytest.fixture
def crm(db, receiver):
    db.webhook_sink("crm", receiver, SECRET, **QUICK)
    db.enqueue("Order", "warm")
    wait_until(lambda: db.pending() == 0, 10, "a first event")
    receiver.clear()
    return db


def wait_all(db, receiver, events: list[str]) -> None:
    wait_until(lambda: db.pending() == 0, 20, "the rows to leave")
    assert [d.id for d in receiver.accepted()] == events
    assert db.sink("dead") == (0,)


@pytest.mark.parametrize("mode", [garbage(), EMPTY, redirect("http://127.0.0.1:1/elsewhere"), status(404), status(599)],
                         ids=["garbage", "closes", "redirect", "404", "599"])
def test_a_bad_answer_is_a_failure_and_retried(crm, receiver, mode):
    receiver.mode = mode
    events = [crm.enqueue("Order", "1") for _ in range(3)]
    wait_until(lambda: len(receiver.deliveries) >= 3, 10, "some attempts")
    assert {d.id for d in receiver.deliveries} == {events[0]}, "the key's order"
    assert crm.pending() == 3
    wait_until(lambda: crm.sink("last_error")[0], 5, "the error to be shown")
    receiver.mode = OK
    receiver.clear()
    wait_all(crm, receiver, events)


def test_the_error_of_a_redirect_names_it(crm, receiver):
    receiver.mode = redirect("http://127.0.0.1:1/?token=s3cret", 307)
    crm.enqueue("Order", "1")
    error = wait_until(lambda: crm.value("SELECT last_error FROM outbox.events_pending"), 10, "the error")
    assert "307" in error and "s3cret" not in error


def test_a_body_of_a_gigabyte_costs_little_memory(crm, receiver):
    pid = worker(crm)
    before = peak = private_memory(pid)
    receiver.mode = HUGE
    for n in range(4):
        crm.enqueue("Order", str(n))

    def many_seen() -> bool:
        nonlocal peak
        peak = max(peak, private_memory(pid))
        return len(receiver.deliveries) >= 4 and receiver.open_requests == 0

    wait_until(many_seen, 30, "the answers")
    wait_until(lambda: many_seen() and not receiver.connections or crm.pending() == 0, 30, "the end of the bodies")
    assert peak - before < 30 * MB
    assert receiver.bytes_sent < 256 * MB, "the body was read to its end"
    assert worker(crm) == pid
    receiver.mode = OK
    wait_until(lambda: crm.pending() == 0, 20, "the rows to leave")
    assert crm.value("SELECT count(*) FROM outbox.events") == 0
    assert crm.value("SELECT memory FROM outbox.workers WHERE database = %s", crm.name) - before < 30 * MB
