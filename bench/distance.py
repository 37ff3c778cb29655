"""What a network between the worker and the broker costs: latency and a drain through a proxy that delays each byte. Beside it, with five
requests in flight: librdkafka alone, which may store events of a key in another order, and Kafka's own Java producer, warm."""

import drain
import latency
from outbox_rig import wait_until
from results import Results, Row, at_most, ratio_at_least, ratio_at_most
from stage import Stage, has_java_compiler, progress

RATE = 1000
DRAIN_MS, DRAIN_PARTITIONS = 5, 100
GOALS = {12: {"p50": 6, "p99": 30}}


def latencies(stage: Stage, results: Results, round_trip_ms: float, partitions: int, seconds: float, java: bool) -> None:
    where = f"{round_trip_ms:g} ms away, {partitions} partitions"
    with stage.far(round_trip_ms, partitions) as far, far.database("distance") as db:
        far.kafka_sink(db)
        ways = {"librdkafka_alone": latency.alone(far), "outbox": latency.ours(far, db)}
        if java:
            ways["java"] = latency.java(far)
        load = f"far-{round_trip_ms:g}-{partitions}"
        latency.at_rate(far, f"warm-{load}", ways, RATE, 10)  # the sink opens its producers
        found = results.data[where] = latency.at_rate(far, load, ways, RATE, seconds)
        wait_until(lambda: db.value("SELECT NOT EXISTS (SELECT FROM outbox.events)"), 30, "an empty table")
        far.must_be_done(db)
        for name in ("p50", "p99", "p99.9"):
            key, goals = f"{name}_ms", GOALS.get(partitions, {})
            results.rows.append(Row(f"commit → consumer at {RATE:,}/s, {where}, {name}", found["outbox"][key], "ms", found["librdkafka_alone"][key],
                                    "librdkafka alone", goals=[at_most(goals[name])] if name in goals else []))
            if java:
                results.rows.append(Row(f"  beside Kafka's Java producer, {name}", found["outbox"][key], "ms", found["java"][key], "Java",
                                        goals=[] if goals or name == "p99.9" else [ratio_at_most(1)]))


def drains(stage: Stage, results: Results, events: int, java: bool) -> None:
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
        if java:
            rival = results.data[f"drain, {where}"]["java"] = drain.java(far, "far-java", "fixed", events)
            far.must_have_arrived("far-java", events)
            progress(f"Kafka's Java producer, warm: {rival['rate']:,.0f} events/s")
            results.rows.append(Row("  beside Kafka's Java producer, warm", mine["rate"], "events/s", rival["rate"], "Java"))


def measure(stage: Stage, results: Results, plan: list[tuple[float, int]], seconds: float, events: int) -> None:
    java = has_java_compiler()
    if not java:
        progress("Kafka's Java producer is left out: there is no Java compiler (install default-jdk-headless)")
    for round_trip_ms, partitions in plan:
        latencies(stage, results, round_trip_ms, partitions, seconds, java)
    drains(stage, results, events, java)
