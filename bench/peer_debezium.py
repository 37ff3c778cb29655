"""Debezium's outbox event router compared with outbox: the same events, broker and machine, alternating. It has a
server of its own with wal_level = logical, so that neither pays for the other's needs."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import drain as outbox_drain
import latency as outbox_latency
from measure import CORES, cpu_seconds, machine_seconds, median
from outbox_rig.database import Database
from outbox_rig.debezium import Debezium
from results import Results, Row, ratio_at_least, ratio_at_most
from stage import PARTITIONS, SETTINGS, Stage, end_of, progress
from watch import Sampler

# The guarantees that outbox gives too. Everything else is the default of Kafka Connect and Debezium, except settings
# that make it faster:
PRODUCER = {"acks": "all", "enable.idempotence": "true", "compression.type": "lz4"}
TUNED = {"poll.interval.ms": "5", "producer.override.linger.ms": "5", "producer.override.batch.size": "131072"}
INSERT = "INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ($1, $2, 'order.created', $3::jsonb)"
TRANSACTION = 50_000  # events; larger ones would not fit into the walsender's memory


class Arrivals(Sampler):
    """Records that have arrived in a topic."""

    def __init__(self, stage: Stage, debezium: Debezium, topic: str, events: int):
        self._debezium, self._topic, self._consumer = debezium, topic, stage.consumer(topic)
        super().__init__(events, interval=0.05)

    def count(self) -> int:
        return end_of(self._consumer, self._topic)

    def carriers(self) -> list[int]:
        return [self._debezium.pid]

    def log(self) -> Path:
        return self._debezium.log

    def close(self) -> None:
        self._consumer.close()


class Rival:
    def __init__(self, stage: Stage):
        print("starting another PostgreSQL, and Debezium ...")
        self.stage = stage
        self.pg = stage.rig.postgres(settings=SETTINGS | {"wal_level": "logical"}, tcp=True)
        self.debezium: Debezium = stage.rig.debezium(pg=self.pg, dbname="debezium", kafka=stage.kafka, producer=PRODUCER)
        self.debezium.configure(TUNED)
        self.db = Database(self.pg, "debezium")

    def close(self) -> None:
        self.db.disconnect()
        self.debezium.stop()
        self.pg.close()

    def carriers(self) -> list[int]:
        return [self.debezium.pid, self.debezium.walsender_pid]

    def drain(self, aggregate_type: str, events: int) -> dict:
        """From the resumption to the last event in the topic; checks that each arrived once and in order."""
        stage, topic = self.stage, f"outbox.event.{aggregate_type}"
        stage.kafka.create_topic(topic, PARTITIONS)
        self.debezium.pause()
        carriers = self.carriers()
        used = cpu_seconds(carriers)  # decoding while it is paused counts too
        for first in range(1, events + 1, TRANSACTION):
            stage.load(self.db, "fixed", min(TRANSACTION, events + 1 - first), aggregate_type, first, "outbox (aggregatetype, aggregateid, type, payload)")
        paused, broker, machine = cpu_seconds(carriers), cpu_seconds([stage.broker_pid]), machine_seconds()
        started = time.monotonic()
        self.debezium.resume()
        arrivals = Arrivals(stage, self.debezium, topic, events)
        arrivals.finish()
        ended = cpu_seconds(carriers)
        seconds = arrivals.samples[-1][0] - started
        shares = [value / seconds for value in (ended - paused, cpu_seconds([stage.broker_pid]) - broker, machine_seconds() - machine)]
        self.debezium.must_run()
        stage.must_have_arrived(topic, events)
        self.db.sql("TRUNCATE outbox")
        found = {"seconds": seconds, "rate": events / seconds, "cpu_us_per_event": (ended - used) / events * 1e6, "memory_mb": arrivals.memory / 2**20,
                 "curve": arrivals.curve(), "cores_busy": {"debezium": round(shares[0], 3), "broker": round(shares[1], 3), "machine": round(shares[2], 3)}}
        progress(f"Debezium: {found['rate']:,.0f} events/s, each arrived once and in order ({found['cpu_us_per_event']:.1f} µs of CPU an event, "
                 f"{found['memory_mb']:,.0f} MB)")
        return found

    def warm_up(self, what: str, events: int, rounds: int) -> list[dict]:
        """The JIT compiler needs more than a million events to become warm."""
        return [self.drain(f"{what}-warm-up{number}", events) for number in range(1, rounds + 1)]


@contextmanager
def rival(stage: Stage) -> Iterator[Rival]:
    there = Rival(stage)
    try:
        yield there
    finally:
        there.close()


def drain(stage: Stage, results: Results, events: int, rounds: int, warm_ups: int) -> None:
    """The best round of each counts."""
    ours, theirs = [], []
    with stage.database("peers_drain") as db, rival(stage) as debezium:
        stage.kafka_sink(db)
        cold = debezium.warm_up("drain", 500_000, warm_ups)
        for number in range(1, rounds + 1):
            ours.append(outbox_drain.ours(stage, db, f"Beside{number}", "fixed", events))
            theirs.append(debezium.drain(f"Debezium{number}", events))

    results.data |= {"outbox": ours, "debezium": theirs, "debezium_warming_up": cold}
    best, rival_best = (max(found, key=lambda one: one["rate"]) for found in (ours, theirs))
    results.rows += [
        Row(f"drain of {events:,} events (300 B) to Kafka, best of {rounds} each", best["rate"], "events/s", rival_best["rate"], "Debezium, warm",
            goals=[ratio_at_least(3.5)], limit=best["limit"]),
        Row("  CPU of the relay per event", median([one["cpu_us_per_event"] for one in ours]), "µs",
            median([one["cpu_us_per_event"] for one in theirs]), "Debezium with its walsender", goals=[ratio_at_most(0.3)],
            limit=f"Debezium {rival_best['cores_busy']['debezium']:.2f}, broker {rival_best['cores_busy']['broker']:.2f}, all "
                  f"{rival_best['cores_busy']['machine']:.2f} of {CORES} cores"),
        Row("  the relay's own memory at its most", max(one["worker_memory_mb"] for one in ours), "MB", max(one["memory_mb"] for one in theirs), "Debezium"),
    ]


def latency(stage: Stage, results: Results, plan: list[tuple[int, int]], defaults: list[tuple[int, int]]) -> None:
    """Tuned for low latency, alternating with outbox and librdkafka alone; and with default settings."""
    with stage.database("peers_latency") as db, rival(stage) as debezium:
        stage.kafka_sink(db)
        debezium.warm_up("latency", 200_000, 1)
        ways = {"librdkafka_alone": outbox_latency.alone(stage), "outbox": outbox_latency.ours(stage, db),
                "debezium": outbox_latency.transactions(stage, debezium.db, INSERT, debezium.carriers())}
        outbox_latency.at_rate(stage, "beside-warm-up", ways, outbox_latency.WARM_UP_RATE, 4)
        for rate, seconds in plan:
            found = results.data[f"{rate}/s"] = outbox_latency.at_rate(stage, "beside", ways, rate, seconds)
            for key, goals in (("p50", [ratio_at_most(0.2)]), ("p99", [])):
                results.rows.append(Row(f"commit → consumer at {rate:,}/s, {key}", found["outbox"][f"{key}_ms"], "ms", found["debezium"][f"{key}_ms"],
                                        "Debezium, poll.interval.ms=5", goals=goals, limit=f"librdkafka alone {found['librdkafka_alone'][f'{key}_ms']:.2f} ms"))
        stage.must_be_done(db)
        debezium.debezium.configure()
        ways = {"debezium_defaults": outbox_latency.transactions(stage, debezium.db, INSERT, debezium.carriers())}
        for rate, seconds in defaults:
            found = results.data[f"{rate}/s"]
            found |= outbox_latency.at_rate(stage, "as-it-comes", ways, rate, seconds)
            results.rows += [Row(f"commit → consumer at {rate:,}/s, {key}", found["outbox"][f"{key}_ms"], "ms", found["debezium_defaults"][f"{key}_ms"],
                                 "Debezium's defaults") for key in ("p50", "p99")]
        debezium.debezium.must_run()
