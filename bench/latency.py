"""From just before COMMIT to the consumer's poll, compared with librdkafka alone from produce to poll."""

import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from measure import cpu_seconds, percentile
from outbox_rig import wait_until
from outbox_rig.database import Database
from results import Failure, Results, Row, at_most, ratio_at_most
from stage import Stage, end_of, finish, progress

ENQUEUE = "SELECT outbox.enqueue($1, $2::text, 'order.created', $3::jsonb)"
CONNECTIONS = 4
TURNS = 2
WARM_UP_SECONDS = 1  # at the start of each turn: not counted
WARM_UP_RATE = 500
PERCENTILES = [*range(0, 99, 2), 99, 99.5, 99.9, 100]
NUMBER = re.compile(rb'"n": (\d+)')


def consume_during(stage: Stage, topic: str, child: subprocess.Popen, events: int) -> list[float]:
    """When each event was polled, in microseconds of the realtime clock; one poll at a time."""
    arrived = [0.0] * events
    missing = events
    consumer = stage.consumer(topic)
    try:
        deadline = None
        while missing:
            message = consumer.poll(1)
            at = time.time_ns() / 1000
            if message is not None and not message.error():
                n = int(NUMBER.match(message.value(), 1)[1]) - 1  # line numbers in the file of times
                if arrived[n]:
                    raise Failure(f"event {n} arrived twice")
                arrived[n] = at
                missing -= 1
            elif child.poll() is not None:  # nothing arrived for a second, and nothing more is sent
                if child.returncode:
                    raise Failure(f"{child.args[0].name} ended with code {child.returncode}")
                deadline = deadline or time.monotonic() + 30
                if time.monotonic() > deadline:
                    lost = [n for n in range(events) if not arrived[n]]
                    raise Failure(f"{missing} of {events} events never arrived, such as {lost[:5]}; "
                                  f"topic {topic} holds {end_of(consumer, topic)}")
    finally:
        consumer.close()
    return arrived


@dataclass
class Sample:
    """Milliseconds of each event; for applications also the milliseconds until COMMIT returned."""
    latencies: list[float] = field(default_factory=list)
    commits: list[float] = field(default_factory=list)
    worst_lag_ms: float = 0
    sent: int = 0
    cpu: float = 0  # CPU seconds of the processes that deliver

    def add(self, path: Path, arrived: list[float], rate: float, worst_lag_ms: float) -> None:
        times = [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
        self.sent += len(times)
        counted = range(int(rate * WARM_UP_SECONDS), len(times))
        self.latencies += [(arrived[n] - times[n][0]) / 1000 for n in counted]
        self.commits += [(times[n][1] - times[n][0]) / 1000 for n in counted if times[n][1]]
        self.worst_lag_ms = max(self.worst_lag_ms, worst_lag_ms)

    def figures(self) -> dict:
        found = {"events": len(self.latencies), "worst_lag_ms": self.worst_lag_ms, "cpu_us_per_event": self.cpu / self.sent * 1e6}
        for name, values in (("", self.latencies), ("commit_", self.commits)):
            if values:
                found |= {f"{name}p50_ms": percentile(values, 50), f"{name}p90_ms": percentile(values, 90),
                          f"{name}p99_ms": percentile(values, 99),
                          f"{name}p99.9_ms": percentile(values, 99.9), f"{name}max_ms": max(values)}
        found["percentiles"] = [(percent, round(percentile(self.latencies, percent), 3)) for percent in PERCENTILES]
        return found


@dataclass
class Way:
    """One path from an application to the consumer."""
    topic: str  # {} is replaced by the name of the load
    start: Callable[[str, float, float, Path], subprocess.Popen]  # name, rate, seconds, and where to write the times
    carriers: list[int] = field(default_factory=list)  # the processes whose CPU counts


def transactions(stage: Stage, db: Database, statement: str, carriers: list[int]) -> Way:
    """Transactions of one event each, by an application that inserts it with this statement."""
    return Way("outbox.event.{}", lambda name, rate, seconds, out: stage.program(
        "commit", db.pg.dsn(db.name), statement, name, rate, seconds, CONNECTIONS, out), carriers)


def ours(stage: Stage, db: Database) -> Way:
    return transactions(stage, db, ENQUEUE, [stage.wait_for_worker(db)])


def alone(stage: Stage) -> Way:
    return Way("{}", lambda name, rate, seconds, out: stage.produce(name, "pace", rate, seconds, out))


def java(stage: Stage) -> Way:
    """Kafka's own Java producer, as `alone`."""
    return Way("{}", lambda name, rate, seconds, out: stage.java_produce(name, "fixed", int(rate * seconds), "pace", rate, out))


def one(stage: Stage, sample: Sample, way: Way, name: str, rate: float, seconds: float) -> None:
    seconds += WARM_UP_SECONDS
    topic, out = way.topic.format(name), stage.directory / name
    stage.kafka.create_topic(topic, stage.partitions)
    before = cpu_seconds(way.carriers)
    with way.start(name, rate, seconds, out) as child:
        try:
            arrived = consume_during(stage, topic, child, int(rate * seconds))
        except BaseException:
            child.kill()
            raise
        told = finish(child)
    sample.cpu += cpu_seconds(way.carriers) - before
    sample.add(out, arrived, rate, told.get("worst_lag_ms", 0))


def at_rate(stage: Stage, what: str, ways: dict[str, Way], rate: int, seconds: float) -> dict[str, dict]:
    """All paths alternating, so that they have the same machine and an equally warm broker."""
    samples = {name: Sample() for name in ways}
    for turn in range(1, TURNS + 1):
        for name, way in ways.items():
            one(stage, samples[name], way, f"{what}-{name}-at-{rate}-{turn}", rate, seconds / TURNS)
    found = {name: sample.figures() for name, sample in samples.items()}
    progress(f"{what} at {rate:,}/s: " + "; ".join(f"{name} p50 {one['p50_ms']:.2f}, p99 {one['p99_ms']:.2f} ms" for name, one in found.items()))
    return found


def measure(stage: Stage, results: Results, plan: list[tuple[int, int]]) -> None:
    with stage.database("latency") as db:
        stage.kafka_sink(db)
        ways = {"librdkafka_alone": alone(stage), "outbox": ours(stage, db)}
        at_rate(stage, "warm-up", ways, WARM_UP_RATE, 2)  # the broker's JIT compiler is warm for both
        for rate, seconds in plan:
            found = results.data[f"{rate}/s"] = at_rate(stage, "latency", ways, rate, seconds)
            wait_until(lambda: db.value("SELECT NOT EXISTS (SELECT FROM outbox.events)"), 30, "an empty table")
            stage.must_be_done(db)
            for name, goals in (("p50", [at_most(2)]), ("p99", [at_most(8), ratio_at_most(1.5)])):
                key = f"{name}_ms"
                results.rows.append(Row(f"commit → consumer at {rate:,}/s, {name}", found["outbox"][key], "ms", found["librdkafka_alone"][key],
                                        "librdkafka alone", goals=goals, either=True, limit=f"COMMIT itself {found['outbox']['commit_' + key]:.2f} ms"))
            results.rows.append(Row("  CPU of the worker per event", found["outbox"]["cpu_us_per_event"], "µs"))
