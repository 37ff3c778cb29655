"""Order and completeness with any number of workers, and while the number changes."""

import json
import os
import signal
from collections import Counter, defaultdict

import pytest
from outbox_rig import wait_until
from outbox_rig.asleep import stop_asleep
from outbox_rig.receiver import HANG, OK, SECRET, Receiver, status
from outbox_rig.traffic import Traffic

MAX_IN_FLIGHT = 200  # small, so that the bound on duplicates is tested
LANES = 256


def lanes_of_workers(db) -> list[int]:
    return [lanes for lanes, in db.sql("SELECT shards FROM outbox.workers WHERE database = %s ORDER BY worker", db.name)]


def wait_for_lanes(db, *lanes: int) -> None:
    wait_until(lambda: lanes_of_workers(db) == list(lanes), 30, lambda: f"lanes {lanes}, not {lanes_of_workers(db)}")


def even(n: int) -> list[int]:
    return [LANES // n + (i < LANES % n) for i in range(n)]


def flaky(receiver: Receiver):
    """Every fourth event of a key is refused twice."""
    tries = Counter()

    def answer(delivery):
        tries[delivery.id] += 1
        return status(503 if tries[delivery.id] == 1 else 500) if delivery.json()["data"]["n"] % 4 == 0 and tries[delivery.id] < 3 else OK

    receiver.mode = answer


def check_requests(receiver: Receiver) -> None:
    """No request may arrive while an earlier event of its key is not yet delivered, whatever the response was."""
    requests: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    for delivery in list(receiver.deliveries):
        data = delivery.json()["data"]
        requests[data["key"]].append((data["n"], delivery.accepted()))
    for key, seen in requests.items():
        through: set[int] = set()
        for n, accepted in seen:
            missing = {m for m, _ in seen if m < n} - through
            assert not missing or n in through, f"{key}: {n} came before {sorted(missing)}: {seen}"
            if accepted:
                through.add(n)


def drain_and_check(db, traffic: Traffic, consumer, receiver: Receiver, max_duplicates: int) -> None:
    traffic.drain()
    traffic.check(consumer.take_rest(), max_duplicates)
    traffic.check(receiver.accepted(), max_duplicates)


def go_on(traffic: Traffic, receiver: Receiver, transactions: int = 40) -> None:
    """Waits until the writers have written more and the endpoint has received more."""
    committed, accepted = traffic.committed, len(receiver.accepted())
    wait_until(lambda: traffic.committed >= committed + transactions and len(receiver.accepted()) >= accepted + transactions, 60,
               "events to flow")


def disturb(db, step: int) -> None:
    """Ends a worker or the launcher, and changes the sinks."""
    victim = ["backend_type = 'outbox worker' AND datname = current_database()", "backend_type = 'outbox launcher'"][step % 2]
    db.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {victim} ORDER BY backend_start LIMIT 1")
    db.sql(f"ALTER SERVER crm OPTIONS (SET timeout '{20 + step}s')")


@pytest.mark.slow
@pytest.mark.parametrize("disturbed", [False, True], ids=["alone", "with_terminations_and_alter_server"])
def test_the_number_changes(db, kafka, consume, aggregate, receiver, setting, disturbed):
    """1, 4, 2, 1, 3 workers under traffic with retries. If only the number changes, there are no duplicates."""
    flaky(receiver)
    setting("outbox.max_in_flight", str(MAX_IN_FLIGHT))
    db.kafka_sink("main", kafka)
    db.webhook_sink("crm", receiver, SECRET, retry="20ms..100ms", timeout="20s")
    consumer = consume(f"outbox.event.{aggregate}")
    with Traffic(db, aggregate, keys=25) as traffic:
        go_on(traffic, receiver)
        for step, n in enumerate((4, 2, 1, 3)):
            setting("outbox.workers", str(n))
            if disturbed:
                go_on(traffic, receiver, 10)
                disturb(db, step)
            else:
                wait_for_lanes(db, *even(n))
            go_on(traffic, receiver)
    wait_for_lanes(db, *even(3))
    drain_and_check(db, traffic, consumer, receiver, 3 * MAX_IN_FLIGHT if disturbed else 0)
    if not disturbed:
        check_requests(receiver)


@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_fixed_number(db, pg, kafka, consume, aggregate, receiver, setting, n):
    """With retries, and a restart of the server in between."""
    flaky(receiver)
    setting("outbox.max_in_flight", str(MAX_IN_FLIGHT))
    setting("outbox.workers", str(n))
    db.kafka_sink("main", kafka)
    db.webhook_sink("crm", receiver, SECRET, retry="20ms..100ms")
    consumer = consume(f"outbox.event.{aggregate}")
    wait_for_lanes(db, *even(n))
    with Traffic(db, aggregate, keys=25) as traffic:
        go_on(traffic, receiver)
        pg.restart()
        db.disconnect()
        go_on(traffic, receiver)
    wait_for_lanes(db, *even(n))
    drain_and_check(db, traffic, consumer, receiver, n * MAX_IN_FLIGHT)


# ---- what a worker must know of a lane ---------------------------------------------------------------------------


def keys_by_lane(db) -> list[list[str]]:
    """At least three keys for each of these shards."""
    keys: list[list[str]] = [[] for _ in range(LANES)]
    for key, lane in db.sql("SELECT 'k' || n, hashtextextended('k' || n, 0) & 255 FROM generate_series(1, 5000) AS n"):
        keys[lane].append(key)
    assert min(map(len, keys)) >= 3
    return keys


@pytest.mark.slow
def test_blocked_keys_stay_blocked_at_the_next_owner(db, receiver, setting):
    """Dead letters block their keys under two workers, and then under the first alone, which has not read half of
    them."""
    keys = keys_by_lane(db)[:8]
    held, free = {names[0] for names in keys}, {names[1] for names in keys}

    def enqueue(names: set[str], n: int) -> None:
        for name in names:
            db.enqueue("Order", name, "e", json.dumps({"key": name, "n": n}))

    def numbers(name: str) -> list[int]:
        return [d.json()["data"]["n"] for d in receiver.accepted() if d.json()["data"]["key"] == name]

    setting("outbox.workers", "2")
    wait_for_lanes(db, 128, 128)
    receiver.mode = lambda delivery: status(400) if delivery.json()["data"]["key"] in held else OK
    db.webhook_sink("crm", receiver, SECRET, on_dead_letter="block", max_attempts="1")
    enqueue(held, 1)
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events WHERE status = 'FAILED'") == 8, 20, "dead letters")
    setting("outbox.workers", "1")
    wait_for_lanes(db, 256)
    receiver.mode = OK
    enqueue(held, 2)
    enqueue(free, 1)
    wait_until(lambda: all(numbers(name) == [1] for name in free), 20, "the other keys")
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events_pending WHERE blocked_by IS NOT NULL") == 8, 20, "the keys to be held")
    assert [numbers(name) for name in held] == [[]] * 8
    db.sql("SELECT outbox.redrive(id, sink) FROM outbox.events WHERE status = 'FAILED'")
    wait_until(lambda: all(numbers(name) == [1, 2] for name in held), 20, "the keys to go on, in order")


# ---- a sink that hangs ---------------------------------------------------------------------------------------------


@pytest.fixture
def slow(rig):
    with rig.receiver(secret=SECRET) as receiver:
        yield receiver


@pytest.mark.slow
@pytest.mark.slow
def test_a_worker_that_stands_still(db, receiver, setting):
    """A process that is stopped for a minute is given no shard, so that the healthy one goes on when there are to be fewer workers. What it has is
    sent by no other."""
    setting("outbox.poll_interval", "1s")
    setting("outbox.workers", "2")
    db.webhook_sink("crm", receiver, SECRET)
    wait_for_lanes(db, *even(2))
    frozen = db.value("SELECT pid FROM outbox.workers WHERE database = current_database() AND worker = 0")
    stop_asleep(db, f"pid = {frozen}")
    try:
        ids = [db.enqueue("Order", f"k{n}") for n in range(40)]
        wait_until(lambda: db.state("crm") == "worker stands still", 60, lambda: f"the state, not {db.state('crm')}")
        early = len(receiver.accepted())
        assert 0 < early < 40
        assert db.doctor("worker")[0] == "error"
        wait_until(lambda: db.value("SELECT last_loop_at < clock_timestamp() - interval '62 s' FROM outbox.workers WHERE pid = %s", frozen), 90, "a minute")
        setting("outbox.workers", "1")
        more = [db.enqueue("Order", f"k{n}") for n in range(40)]
        wait_until(lambda: len(receiver.accepted()) == 2 * early, 30, "the healthy worker to go on")
        assert lanes_of_workers(db) == even(2)
    finally:
        os.kill(frozen, signal.SIGCONT)
    wait_until(lambda: len(receiver.accepted()) == 80, 30, lambda: f"all events, not {len(receiver.accepted())}")
    wait_for_lanes(db, LANES)
    assert sorted(d.id for d in receiver.deliveries) == sorted(ids + more), "each once"
    place = {d.id: n for n, d in enumerate(receiver.deliveries)}
    assert all(place[first] < place[second] for first, second in zip(ids, more)), "in order per key"


def test_a_hung_sink_keeps_only_what_it_has(db, receiver, slow, setting):
    """Hanging events in flight stay with their worker; the rest of the shard, and the shard's other sinks, move to
    the new owner."""
    keys, numbers, hung = keys_by_lane(db), Counter(), set()
    plain = [lane_keys[0] for lane_keys in keys]
    failing = keys[5][2]

    def enqueue(*names: str, **more) -> None:
        with db.connect(autocommit=False) as connection:
            for name in names:
                numbers[name] += 1
                extra = "".join(f", {column} => {value}" for column, value in more.items())
                connection.execute(f"SELECT outbox.enqueue('Order', %s::text, 'e', %s::jsonb{extra})",
                                   [name, json.dumps({"key": name, "n": numbers[name]})])

    def answer(delivery):
        key = delivery.json()["data"]["key"]
        return HANG if key in hung else status(500) if key == failing else OK

    def hang(*lanes: int) -> None:
        names = [keys[lane][1] for lane in lanes]
        hung.update(names)
        requests = slow.open_requests
        enqueue(*names)
        wait_until(lambda: slow.open_requests == requests + len(names), 20, "the requests to hang")
        enqueue(*names)  # more events queued behind them

    def got(endpoint: Receiver) -> Counter:
        return Counter(d.json()["data"]["key"] for d in endpoint.accepted())

    def flows(waiting_lanes: set[int]) -> None:
        """Enqueues an event in every shard: all arrive at the healthy sink, and at the other sink all except those
        of shards that must wait."""
        enqueue(*plain)
        wait_until(lambda: all(got(receiver)[key] == numbers[key] for key in plain), 10, "the healthy sink")
        free = [key for lane, key in enumerate(plain) if lane not in waiting_lanes]
        wait_until(lambda: all(got(slow)[key] == numbers[key] for key in free), 10, "the other lanes")
        stuck = [key for lane, key in enumerate(plain) if lane in waiting_lanes]
        assert not any(got(slow)[key] == numbers[key] for key in stuck), "a lane changed hands too early"

    slow.mode = answer
    db.webhook_sink("crm", receiver, SECRET)
    db.webhook_sink("slow", slow, SECRET, timeout="5min", concurrency="64", retry="1h", max_attempts="100")
    wait_for_lanes(db, 256)
    hang(0, 4, 5, 6, 7)
    enqueue(failing)
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events_pending WHERE attempts = 1") == 1, 20, "its failure")
    enqueue(failing, available_at="now() + interval '8 s'")

    setting("outbox.workers", "4")
    wait_for_lanes(db, 64, 64, 64, 64)
    flows({5, 6, 7})
    hang(10, 11)
    setting("outbox.workers", "2")
    wait_for_lanes(db, 128, 128, 0, 0)  # two workers are superfluous and wait for their events in flight
    flows({5, 6, 7, 10, 11})
    assert db.value("SELECT state FROM outbox.workers WHERE database = %s AND worker = 3", db.name) == "handing shards over"

    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events_pending WHERE available_at > now()") == 1, 20, "the scheduled one")
    hung.clear()
    slow.release()
    wait_for_lanes(db, 128, 128)
    wait_until(lambda: db.pending() == 2, 30, "all but the failing key")
    assert got(slow)[failing] == 0, "a scheduled event has overtaken the failing one"
    slow.mode = OK
    db.sql("UPDATE outbox.events SET available_at = NULL WHERE status = 'PENDING'")
    wait_until(lambda: db.pending() == 0, 30, "the failing key")
    for endpoint in (receiver, slow):
        assert got(endpoint) == numbers
        check_requests(endpoint)
    assert max(Counter(d.id for d in receiver.deliveries).values()) == 1
    assert [id for id, n in Counter(d.id for d in slow.deliveries).items() if n > 1] \
        == [d.id for d in slow.deliveries if d.json()["data"] == {"key": failing, "n": 1}][:1]
