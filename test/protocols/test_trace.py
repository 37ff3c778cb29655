"""What real workers log is an execution of shards.pml: workers that come and go while events are in flight. A trace that real workers cannot have made is
refused."""

import threading
from copy import deepcopy

import pytest
import trace
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import SECRET, slow

ROUNDS = 6  # until a shard was handed over with an event in flight, and taken; the first one does it on a quiet machine


def given_away(of: trace.Trace) -> int:
    """The place of the first step that gives the shard away with events in flight."""
    return next(n for n, step in enumerate(of.steps) if step.name == "FOLLOWS" and step.value % 3 == 2)


def taken(of: trace.Trace) -> int | None:
    """The place of the first step after that by which another worker owns the shard and claims its events."""
    given = given_away(of)
    return next((n for n, step in enumerate(of.steps) if n > given and step.name == "FOLLOWS" and step.worker != of.steps[given].worker and step.value == 4), None)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return trace.Model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def traces(rig):
    """The traces of a server whose number of workers changes under traffic, with idle exits between."""
    pg = rig.postgres(settings={"log_min_messages": "debug2", "outbox.worker_idle_timeout": "1s", "outbox.poll_interval": "1s"})
    receiver = rig.receiver(secret=SECRET, mode=slow(0.2))
    db = Database(pg, "traced")
    db.create()
    db.webhook_sink("crm", receiver, SECRET, concurrency="64", retry="50ms..100ms")

    def traffic() -> None:
        with db.connect() as connection:
            for _ in range(6):
                connection.execute("SELECT outbox.enqueue('Order', (n % 40)::text, 'order.created', '{}') FROM generate_series(1, 60) n")

    def workers(n: int) -> None:
        db.sql(f"ALTER SYSTEM SET outbox.workers = {n}")
        db.sql("SELECT pg_reload_conf()")

    def all_there(n: int) -> bool:
        return db.sql("SELECT count(*), min(workers), max(workers) FROM outbox.workers WHERE database = 'traced'") == [(n, n, n)]

    for _ in range(ROUNDS):
        for n in (2, 3, 1):
            writer = threading.Thread(target=traffic)
            writer.start()
            workers(n)
            wait_until(lambda: all_there(n), 60, f"{n} workers")
            writer.join()
        wait_until(lambda: db.pending() == 0, 60, "the events to leave")
        wait_until(lambda: all_there(0) or db.value("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox worker' AND datname = 'traced'") == 0,
                   60, "the workers to exit when idle")
        found = trace.read(pg.log)
        if any(each.handed_over and taken(each) for each in found):
            return found
    pytest.fail(f"in {ROUNDS} rounds no shard was handed over with an event in flight and taken by another worker")


def test_what_workers_do_is_an_execution_of_the_model(model, traces):
    refused = trace.replay(model, traces)
    print(f"{len(traces)} shards with {sum(each.claims for each in traces)} claims, {sum(each.handed_over for each in traces)} handed over in flight")
    assert not [(each.shard, step) for each, step in refused]
    assert {step.name for each in traces for step in each.steps} >= {"SPREAD", "TAKES", "FOLLOWS", "CLAIMS", "ENDS", "RESIGNS", "EXITS"}


def without(of: trace.Trace, wanted, after: int = 0) -> trace.Trace:
    """The trace without the first step from `after` on that is wanted."""
    copy = deepcopy(of)
    del copy.steps[next(n for n, step in enumerate(copy.steps) if n >= after and wanted(step))]
    return copy


@pytest.mark.parametrize("wanted, from_there", [
    (lambda step: step.name == "TAKES", False),
    (lambda step: step.name == "CLAIMS", False),
    (lambda step: step.name == "FOLLOWS", True),
    (lambda step: step.name == "ENDS", True),
], ids=["a worker without a slot", "an event that nobody claimed", "a shard that left without a word", "an event that never ended"])
def test_a_trace_without_a_step_is_refused(model, traces, wanted, from_there):
    handed = next(each for each in traces if each.handed_over)
    giver = handed.steps[given_away(handed)].worker
    assert model.refuses(handed) is None
    assert model.refuses(without(handed, lambda step: wanted(step) and (not from_there or step.worker == giver), given_away(handed) * from_there)) is not None


def test_a_shard_that_is_taken_before_it_is_drained_is_refused(model, traces):
    """The steps of two workers, swapped: the new owner claims while the former one has events in flight."""
    tried = [each for each in traces if each.handed_over and taken(each)]
    assert tried
    for each in tried:
        copy = deepcopy(each)
        copy.steps.insert(given_away(copy) + 1, copy.steps.pop(taken(copy)))
        assert model.refuses(copy) is not None
