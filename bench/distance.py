"""What a network between the worker and the broker costs: latency and a drain through a proxy that delays each byte."""

import drain
import latency
from outbox_rig import wait_until
from results import Results, Row, at_most, ratio_at_least
from stage import Stage, progress

RATE = 1000
DRAIN_MS, DRAIN_PARTITIONS = 5, 100
GOALS = {12: {"p50": 6, "p99": 30}}


def latencies(stage: Stage, results: Results, round_trip_ms: float, partitions: int, seconds: float) -> None:
    """librdkafka alone has up to five requests in flight, and may therefore store events of a key in another order."""
    where = f"{round_trip_ms:g} ms away, {partitions} partitions"
    with stage.far(round_trip_ms, partitions) as far, far.database("distance") as db:
        far.kafka_sink(db)
        ways = {"librdkafka_alone": latency.alone(far), "outbox": latency.ours(far, db)}
        load = f"far-{round_trip_ms:g}-{partitions}"
        latency.at_rate(far, f"warm-{load}", ways, RATE, 10)  # the sink opens its producers
        found = results.data[where] = latency.at_rate(far, load, ways, RATE, seconds)
        wait_until(lambda: db.value("SELECT NOT EXISTS (SELECT FROM outbox.events)"), 30, "an empty table")
        far.must_be_done(db)
        for name in ("p50", "p99", "p99.9"):
            key, goals = f"{name}_ms", GOALS.get(partitions, {})
            results.rows.append(Row(f"commit → consumer at {RATE:,}/s, {where}, {name}", found["outbox"][key], "ms", found["librdkafka_alone"][key],
                                    "librdkafka alone", goals=[at_most(goals[name])] if name in goals else []))


def drains(stage: Stage, results: Results, events: int) -> None:
    where = f"{DRAIN_MS} ms away, {DRAIN_PARTITIONS} partitions"
    with stage.far(DRAIN_MS, DRAIN_PARTITIONS) as far, far.database("distance_drain") as db:
        far.kafka_sink(db)
        drain.alone(far, "far-warm", "fixed", 100_000)
        beside = drain.alone(far, "far-alone", "fixed", events)
        progress(f"librdkafka alone: {beside['rate']:,.0f} events/s")
        mine = drain.ours(far, db, "Far", "fixed", events)
        results.data[f"drain, {where}"] = {"outbox": mine, "librdkafka_alone": beside}
        results.rows.append(Row(f"drain of {events:,} events (300 B), {where}", mine["rate"], "events/s", beside["rate"], "librdkafka alone",
                                goals=[ratio_at_least(0.6)], limit=mine["limit"]))


def measure(stage: Stage, results: Results, plan: list[tuple[float, int]], seconds: float, events: int) -> None:
    for round_trip_ms, partitions in plan:
        latencies(stage, results, round_trip_ms, partitions, seconds)
    drains(stage, results, events)
