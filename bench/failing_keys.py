"""A failing event blocks only its own key: the rate of the other keys with 1 % of the keys failing, compared with
none."""

import time

from measure import Cpu, median
from outbox_rig import wait_until
from results import Failure, Results, Row, ratio_at_least
from stage import SECRET, Stage

KEYS = (1000, 20_000)  # 1 % of them fail
# How long a failing key waits: the format's default, and a delay so short that failures continue all the time.
RETRIES = {"the default schedule": {}, "retries each 0.1 s to 1 s": {"retry": "100ms..1s", "max_attempts": "10000"}}


def one(stage: Stage, url: str, name: str, events: int, keys: int, failing: bool, options: dict[str, str]) -> tuple[float, float]:
    """Events per second of the keys that do not fail, and the worker's CPU per event in microseconds."""
    bad = "n % 100 = 0" if failing else "false"
    with stage.database(name) as db:
        db.webhook_sink("main", url, SECRET, concurrency="64", forward_headers="x-bad", **options)
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


def measure(stage: Stage, results: Results, events: int, rounds: int) -> None:
    """`rounds` of each side, alternating; the median counts."""
    # Not 500: nginx closes the connection after it, and the result would depend on the cost of connecting.
    nginx = stage.rig.nginx(locations="location / { if ($http_x_bad) { return 503; } return 204; }")
    for keys in KEYS:
        for what, options in RETRIES.items():
            found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
            for turn in range(rounds):
                for failing in found:
                    found[failing].append(one(stage, nginx.url, f"failing{keys}_{turn}", events, keys, failing, options))
            (none, none_cost), (some, some_cost) = (map(median, zip(*found[failing])) for failing in (False, True))
            results.rows.append(Row(f"the other keys of {keys:,} when 1 % fail, {what}", some, "events/s", none, "none fails",
                                    goals=[ratio_at_least(0.8)], limit=f"main thread {some_cost:.1f} µs per event, {none_cost:.1f} when none fails"))
    nginx.stop()
