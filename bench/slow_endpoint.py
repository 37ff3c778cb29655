"""One endpoint of a hundred needs a second for each response: do the others keep their rate?"""

from measure import Cpu, median
from outbox_rig import wait_until
from outbox_rig.receiver import SECRET, slow
from results import Failure, Results, Row, ratio_at_least
from stage import Stage, progress
from watch import Watch
from webhooks import AccessLog, expected

SINKS = 100
CONCURRENCY = 8  # per quick endpoint: nginx accepts 1,024 connections


def one(stage: Stage, log: AccessLog, quick: str, first: str, events: int) -> tuple[float, Cpu]:
    """Deliveries per second to all sinks except the first, whose URL is given."""
    log.empty()
    with stage.database("slow") as db:
        stage.pause(db)
        for n in range(SINKS):
            db.webhook_sink(f"s{n}", f"{quick}/s{n}" if n else first, SECRET, concurrency=str(CONCURRENCY if n else 32), timeout="30s")
        stage.load(db, "small", events, "Order")
        arriving = expected(db, "s1")
        others = (SINKS - 1) * events
        watch = Watch(stage, db, others, but="s0")
        stage.switch(True)
        before = Cpu.now(stage.wait_for_worker(db), 0)
        watch.finish(120)
        cpu = Cpu.now(stage.wait_for_worker(db), 0).since(before)
        wait_until(lambda: not db.pending(), 60, "the first sink's events to be delivered too")
        stage.must_be_done(db)
        for n in range(1, SINKS):
            log.must_hold(f"/s{n}", arriving)
    return watch.rate(0.05, 0.95), cpu


def measure(stage: Stage, results: Results, events: int, rounds: int) -> None:
    log = AccessLog(stage)
    nginx, receiver = stage.rig.nginx(locations=log.locations), stage.rig.receiver(secret=SECRET, mode=slow(1))
    rates: dict[str, list[float]] = {"without": [], "with": []}
    for turn in range(rounds):
        for what, url in (("without", f"{nginx.url}/s0"), ("with", receiver.url)):
            receiver.deliveries.clear()
            rate, cpu = one(stage, log, nginx.url, url, events)
            rates[what].append(rate)
            ids = [delivery.id for delivery in receiver.deliveries]
            if what == "with" and (len(ids) != events or len(set(ids)) != events):
                raise Failure(f"the slow endpoint got {len(ids)} requests for {len(set(ids))} of {events} events")
    nginx.stop()
    receiver.stop()
    without, during = median(rates["without"]), median(rates["with"])
    progress(f"99 endpoints get {during:,.0f} requests/s beside a slow one, {without:,.0f} without")
    results.data |= rates
    results.rows.append(Row("webhooks to 99 endpoints beside one that takes 1 s", during, "requests/s", without, "none is slow",
                            median([b / a for a, b in zip(*rates.values())]), [ratio_at_least(0.95)], limit=cpu.limit()))
