"""A thousand endpoints, of which a hundred hang; limits that hold across workers; a backlog that does not arrive all
at once."""

import random
import time

import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import HANG, OK, SECRET, Delivery, Raw, slow, status

ENDPOINTS, HANGING, EACH = 1000, 100, 8


@pytest.fixture
def workers(pg, db, setting):
    def start(n: int) -> None:
        setting("outbox.workers", str(n))
        lanes = "SELECT array_agg(shards ORDER BY worker) FROM outbox.workers WHERE database = %s"
        wait_until(lambda: db.value(lanes, db.name) == [256 // n] * n, 30, lambda: f"{n} workers: {db.value(lanes, db.name)}")

    return start


def load(db, events: int, keys: int, sink: str | None = None) -> None:
    db.sql("""INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, sink)
              SELECT 'Order', n %% %s, 'e', to_jsonb(n), %s FROM generate_series(1, %s) AS n""", keys, sink, events)


def most_within(times: list[float], seconds: float) -> int:
    times, most, first = sorted(times), 0, 0
    for last, at in enumerate(times):
        while at - times[first] >= seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


@pytest.mark.timing
def test_a_hundred_that_hang_cost_nine_hundred_nothing(db, rig):
    receiver, hanging = rig.receiver(), [rig.receiver(mode=HANG) for _ in range(HANGING // 20)]
    db.sql(f"""DO $$ BEGIN FOR n IN 0..{ENDPOINTS - 1} LOOP EXECUTE format('CREATE SERVER e%s FOREIGN DATA WRAPPER outbox_webhook OPTIONS
               (url ''http://127.0.0.1:%s/e%s'', allow_http ''true'', allow_networks ''127.0.0.0/8'', events ''none'', timeout ''1min'', retention ''0'')',
               n, coalesce((ARRAY{[r.port for r in hanging]})[n / 20 + 1], {receiver.port}), n); END LOOP; END $$""")

    def rate(first: int) -> float:
        """The rate of the sinks from this one on, each with some events of different keys."""
        receiver.clear()
        wanted, started = (ENDPOINTS - first) * EACH, time.monotonic()
        db.sql("""INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, sink)
                  SELECT 'Order', k, 'e', '{}', 'e' || n FROM generate_series(1, %s) AS k, generate_series(%s::int, %s) AS n""",
               EACH, first, ENDPOINTS - 1)
        wait_until(lambda: len(receiver.accepted()) >= wanted, 40, lambda: f"{wanted} deliveries, not {len(receiver.accepted())}", interval=0.02)
        assert len({d.id for d in receiver.accepted()}) == len(receiver.accepted()) == wanted
        return wanted / (time.monotonic() - started)

    try:
        rate(HANGING)  # all connections are open
        alone = max(rate(HANGING) for _ in range(3))
        db.sql("""INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, sink)
                  SELECT 'Order', k, 'e', '{}', 'e' || n FROM generate_series(1, 40) AS k, generate_series(0, %s) AS n""", HANGING - 1)
        wait_until(lambda: sum(r.open_requests for r in hanging) >= HANGING * 8, 30, lambda: f"requests to hang: {[r.open_requests for r in hanging]}")
        beside = max(rate(HANGING) for _ in range(3))
        hang = sum(r.open_requests for r in hanging)
        assert hang >= HANGING * 8, "they hang on"
        print(f"{alone:.0f} requests/s alone, {beside:.0f} beside {hang} that hang")
        assert beside > alone / 3, "a busy machine apart, as much as alone"
        assert db.value("SELECT count(*) FROM outbox.sinks WHERE state IN ('idle', 'delivering')") == ENDPOINTS
    finally:
        for each in (receiver, *hanging):
            each.stop()


LIMIT = 50  # per second


def arrive_limited(db, receiver, workers) -> list[float]:
    """When the requests of a sink with a rate limit arrive, which two workers send. Retries count too."""
    limit, events = LIMIT, 120
    db.webhook_sink("crm", receiver, SECRET, rate_limit=f"{limit}/s", retry="50ms", max_attempts="100")
    workers(2)
    refused = set()

    def now_and_then(delivery: Delivery):
        if delivery.json()["data"] % 4 == 0 and delivery.id not in refused:
            refused.add(delivery.id)
            return status(500)
        return OK

    receiver.mode = now_and_then
    load(db, events, 60)
    wait_until(lambda: len(receiver.accepted()) == events, 30, "all of them")
    times = [d.at for d in receiver.deliveries]
    assert len(times) == events + len(refused) and len(refused) == events / 4
    return times


def test_a_rate_limit_holds_for_all_workers_together(db, receiver, workers):
    times = arrive_limited(db, receiver, workers)
    assert max(times) - min(times) > (len(times) - LIMIT) / LIMIT


@pytest.mark.timing
def test_a_rate_limit_holds_in_each_second(db, receiver, workers):
    assert most_within(arrive_limited(db, receiver, workers), 1) <= LIMIT * 1.1, "what the way to the receiver adds is small"


def test_what_gathered_in_an_outage_arrives_one_two_four_at_once(db, receiver):
    db.webhook_sink("crm", receiver, SECRET, timeout="5min")
    receiver.stop()
    load(db, 2000, 2000)
    wait_until(lambda: db.value("SELECT state FROM outbox.sinks") == "circuit open", 20, "the outage to be noticed")
    open_at, answered = [], [0]

    def watch(_: Delivery):
        open_at.append((receiver.open_requests, answered[0]))
        return slow(0.01)

    receiver.mode = watch
    receiver.on_delivery = lambda _: answered.__setitem__(0, answered[0] + 1)
    receiver.start()
    wait_until(lambda: len(receiver.accepted()) >= 1000, 30, "half of them")
    assert all(at_once <= before + 1 for at_once, before in open_at), "each answer lets two follow"
    receiver.mode = HANG
    wait_until(lambda: receiver.open_requests == 32, 20, lambda: f"32 requests at once, not {receiver.open_requests}")
    receiver.mode = OK
    receiver.release()
    wait_until(lambda: len(receiver.accepted()) >= 2000, 30, "all of them")
    assert receiver.most_open_requests == 32


def test_order_and_completeness_under_failures_of_all_kinds(db, receiver, workers):
    """Random responses, closed connections, timeouts, and a restart of the endpoint, with two workers."""
    chance = random.Random(7)
    db.webhook_sink("crm", receiver, SECRET, retry="20ms..100ms", max_attempts="10000", timeout="500ms", concurrency="16")
    workers(2)

    def badly(_: Delivery):
        dice = chance.random()
        return (status(500) if dice < 0.1 else status(429) if dice < 0.12 else HANG if dice < 0.125 else Raw(b"") if dice < 0.15
                else Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12") if dice < 0.17 else OK)

    receiver.mode = badly
    load(db, 400, 20)
    wait_until(lambda: len(receiver.accepted()) > 40, 30, "some")
    receiver.stop()
    load(db, 400, 20)
    receiver.start()
    wait_until(lambda: len(receiver.deliveries) > 300, 30, "more")
    receiver.mode = OK
    wait_until(lambda: db.pending() == 0, 40, lambda: f"the rows to leave, {db.pending()} are left")
    assert db.value("SELECT count(*) FROM outbox.events WHERE status = 'FAILED'") == 0
    seen: dict[int, list[int]] = {}
    first = {d.id: d.json()["data"] for d in reversed(receiver.deliveries)}  # the failed attempts also number some
    for event in dict.fromkeys(d.id for d in receiver.deliveries):
        seen.setdefault(first[event] % 20, []).append(first[event])
    assert seen == {key: [n for n in range(1, 401) if n % 20 == key] * 2 for key in range(20)}


def test_unordered_events_of_one_key_go_at_once(db, receiver):
    receiver.mode = HANG
    db.webhook_sink("free", receiver, SECRET, ordered="false", concurrency="8", timeout="5min")
    load(db, 24, 1)
    wait_until(lambda: receiver.open_requests == 8, 20, "eight of them")
    receiver.mode = OK
    receiver.release()
    wait_until(lambda: len(receiver.accepted()) == 24, 20, "all")
    assert receiver.most_open_requests == 8
