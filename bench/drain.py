"""How fast a backlog reaches Kafka, compared with librdkafka alone with the same bytes."""

import time

from measure import Cpu, median
from outbox_rig import wait_until
from outbox_rig.database import Database
from results import Results, Row, at_most, ratio_at_least
from stage import Stage, finish, progress
from watch import Watch

KINDS = {"fixed": "300 B", "mixed": "100 B to 10 KB, Zipf keys"}


def drain(stage: Stage, db: Database, events: int, workers: int = 1) -> dict:
    """Switches delivery on and waits until the last delivery is recorded."""
    watch, started = Watch(stage, db, events), time.monotonic()
    stage.switch(True)
    wait_until(lambda: len(stage.workers(db)) == workers, 30, f"{workers} workers", interval=0.002)
    worker = stage.workers(db)
    up = time.monotonic()
    before = Cpu.now(worker, stage.broker_pid)
    watch.finish()
    cpu = Cpu.now(worker, stage.broker_pid).since(before)
    seconds = watch.samples[-1][0] - started
    return {"seconds": seconds, "worker_start_ms": (up - started) * 1000, "rate": events / seconds, "curve": watch.curve(),
            "cpu_us_per_event": cpu.worker / events * 1e6, "main_thread_us_per_event": cpu.worker_main / events * 1e6,
            "worker_memory_mb": watch.memory / 2**20, "limit": cpu.limit(), "cores_busy": cpu.shares()}


def alone(stage: Stage, topic: str, kind: str, events: int) -> dict:
    """librdkafka alone with the same events."""
    stage.kafka.create_topic(topic, stage.partitions)
    with stage.produce(topic, "drain", kind, events) as child:
        return finish(child)


def java(stage: Stage, topic: str, kind: str, events: int) -> dict:
    """Kafka's own Java producer, warm, with the same events."""
    stage.kafka.create_topic(topic, stage.partitions)
    with stage.java_produce(topic, kind, events, "drain") as child:
        return finish(child)


def ours(stage: Stage, db: Database, aggregate_type: str, kind: str, events: int, workers: int = 1) -> dict:
    """A drain from the first event to the empty table; checks that each event arrived once and in order."""
    stage.pause(db)
    stage.kafka.create_topic(f"outbox.event.{aggregate_type}", stage.partitions)
    stage.load(db, kind, events, aggregate_type)
    progress(f"{events:,} events enqueued")
    found = drain(stage, db, events, workers)
    wait_until(lambda: db.value("SELECT NOT EXISTS (SELECT FROM outbox.events)"), 30, "an empty table")
    stage.must_be_done(db)
    arrived = stage.must_have_arrived(f"outbox.event.{aggregate_type}", events)
    progress(f"outbox: {found['rate']:,.0f} events/s, each arrived once and in order ({found['cpu_us_per_event']:.1f} µs of CPU an event)")
    db.sql("VACUUM outbox.events_pending")
    return found | {"bytes_per_event": arrived["bytes"] / events}


def side_by_side(stage: Stage, results: Results, kind: str, events: int, rounds: int) -> None:
    """Alternating, so that both have the same machine and an equally warm broker; medians count."""
    mine, beside = [], []
    with stage.database(f"drain_{kind}") as db:
        stage.kafka_sink(db)
        alone(stage, f"warm-{kind}", kind, 100_000)  # the broker's JIT compiler is warm
        for number in range(1, rounds + 1):
            beside.append(alone(stage, f"alone-{kind}{number}", kind, events))
            progress(f"librdkafka alone: {beside[-1]['rate']:,.0f} events/s")
            mine.append(ours(stage, db, f"Drain-{kind}{number}", kind, events) | {"beside": beside[-1]["rate"]})

    ratio = median([one["rate"] / one["beside"] for one in mine])
    best = max(mine, key=lambda one: one["rate"])
    results.data |= {"kind": kind, "outbox": mine, "librdkafka_alone": beside, "ratio_median": ratio}
    results.rows += [
        Row(f"drain of {events:,} events ({KINDS[kind]}) to Kafka", median([one["rate"] for one in mine]), "events/s",
            median([one["rate"] for one in beside]), "librdkafka alone", ratio, [ratio_at_least(0.6)], limit=best["limit"]),
        Row("  CPU of the worker per event", median([one["cpu_us_per_event"] for one in mine]), "µs",
            median([one["cpu_us_per_event"] for one in beside]), "librdkafka alone", goals=[at_most(3.2)] if kind == "fixed" else [],
            limit=f"of it the main thread {median([one['main_thread_us_per_event'] for one in mine]):.2f} µs"),
        Row("  the worker's own memory at its most", max(one["worker_memory_mb"] for one in mine), "MB"),
    ]


def fixed(stage: Stage, results: Results, events: int, rounds: int) -> None:
    side_by_side(stage, results, "fixed", events, rounds)


def mixed(stage: Stage, results: Results, events: int, rounds: int) -> None:
    side_by_side(stage, results, "mixed", events, rounds)
