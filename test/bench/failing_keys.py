"""A failing event holds its own key only: the rate of the other keys with 1 % of the keys failing, beside none.

python test/bench/failing_keys.py [--events N] [--rounds N] [--keys N ...]
"""

import argparse
import sys
import time

from measure import Cpu, median, use_two_cores
from outbox_rig import Rig, wait_until
from outbox_rig.crashes import crashes
from stage import Failure, Stage, progress

GOAL = 0.8
SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
# How long a failing key waits: the default of the format, and so short that failures never cease.
RETRIES = {"the default schedule": {}, "retries each 0.1 s to 1 s": {"retry": "exponential 100ms..1s", "max_attempts": "10000"}}


def one(stage: Stage, url: str, name: str, events: int, keys: int, failing: bool, options: dict[str, str]) -> tuple[float, float]:
    """Events per second of the keys that do not fail, and the worker's CPU for each, in microseconds."""
    bad = "n % 100 = 0" if failing else "false"
    with stage.database(name) as db:
        db.webhook_sink("main", url, SECRET, concurrency="64", **options)
        stage.pause(db)
        db.sql(f"""INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, headers)
                   SELECT 'Order', 'k' || n % {keys}, 'order.created', jsonb_build_object('n', n),
                          CASE WHEN {bad} THEN jsonb '{{"x-bad": "1"}}' END
                   FROM generate_series(1, {events}) AS n""")
        good = db.value("SELECT count(*) FROM outbox.events_pending WHERE headers IS NULL")
        log = stage.pg.log.stat().st_size
        stage.switch(True)
        worker = stage.wait_for_worker(db)
        started, before = time.monotonic(), Cpu.now(worker, 0)
        wait_until(lambda: stage.delivered(db) >= good, 300, lambda: f"{stage.delivered(db)} of {good} events")
        seconds = time.monotonic() - started
        cpu = Cpu.now(worker, 0).since(before)
        with open(stage.pg.log, errors="replace") as lines:
            lines.seek(log)
            if opened := [line for line in lines if "circuit opened" in line]:
                raise Failure(f"{len(opened)} times the circuit opened: {opened[0]}")
        left = db.sql("SELECT count(*), count(*) FILTER (WHERE attempts > 0), count(DISTINCT partition_key) FROM outbox.events_pending")[0]
        if left[0] != events - good or (failing and left[1] == 0):
            raise Failure(f"{left[0]} events are left, {events - good} were to stay, {left[1]} failed")
        return good / seconds, cpu.worker_main / good * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(prog="test/bench/failing_keys.py")
    parser.add_argument("--events", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5, help="of each side, in turns; the median counts")
    parser.add_argument("--keys", type=int, nargs="*", default=[1000, 20_000], help="of which 1 %% fail")
    given = parser.parse_args()
    use_two_cores()
    missed = 0
    with Rig("failing") as rig:
        stage = Stage(rig, "0")
        # Not 500: nginx closes the connection after it, and the ratio would tell what connecting costs.
        nginx = rig.nginx(locations="location / { if ($http_x_bad) { return 503; } return 204; }")
        for keys in given.keys:
            for what, options in RETRIES.items():
                rates: dict[bool, list[float]] = {False: [], True: []}
                costs: dict[bool, list[float]] = {False: [], True: []}
                for turn in range(given.rounds):
                    for failing in (False, True):
                        rate, cost = one(stage, nginx.url, f"failing{keys}_{turn}", given.events, keys, failing, options)
                        rates[failing].append(rate)
                        costs[failing].append(cost)
                ratio = median(rates[True]) / median(rates[False])
                missed += ratio < GOAL
                progress(f"{keys:,} keys, {what}: {median(rates[False]):,.0f} events/s with none failing, {median(rates[True]):,.0f} of the other keys "
                         f"with 1 % failing: ratio {ratio:.2f} (goal {GOAL}); main thread {median(costs[False]):.1f} and {median(costs[True]):.1f} µs/event")
        log = stage.pg.log
    if found := crashes(log):
        raise Failure("the server's log tells of a crash:\n" + "\n".join(found))
    return 1 if missed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        sys.exit(1)
