"""From just before COMMIT to the consumer's poll, beside librdkafka alone from produce to poll."""

import re
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from measure import Cpu, percentile
from outbox_rig import wait_until
from outbox_rig.database import Database
from results import Failure, Results, Row, at_most, ratio_at_most
from stage import PARTITIONS, Stage, end_of, finish, progress

CONNECTIONS = 4
TURNS = 2
WARM_UP_SECONDS = 1  # of each turn: not counted
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
                n = int(NUMBER.match(message.value(), 1)[1]) - 1  # places in the file of times
                if arrived[n]:
                    raise Failure(f"event {n} arrived twice")
                arrived[n] = at
                missing -= 1
            elif child.poll() is not None:  # nothing for a second, and nothing more is sent
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
    """Milliseconds of each event; of an application also those until COMMIT was answered."""
    latencies: list[float] = field(default_factory=list)
    commits: list[float] = field(default_factory=list)
    worst_lag_ms: float = 0

    def add(self, path: Path, arrived: list[float], rate: float, worst_lag_ms: float) -> None:
        times = [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
        counted = range(int(rate * WARM_UP_SECONDS), len(times))
        self.latencies += [(arrived[n] - times[n][0]) / 1000 for n in counted]
        self.commits += [(times[n][1] - times[n][0]) / 1000 for n in counted if times[n][1]]
        self.worst_lag_ms = max(self.worst_lag_ms, worst_lag_ms)

    def figures(self) -> dict:
        found = {"events": len(self.latencies), "worst_lag_ms": self.worst_lag_ms}
        for name, values in (("", self.latencies), ("commit_", self.commits)):
            if values:
                found |= {f"{name}p50_ms": percentile(values, 50), f"{name}p90_ms": percentile(values, 90),
                          f"{name}p99_ms": percentile(values, 99), f"{name}max_ms": max(values)}
        found["percentiles"] = [(percent, round(percentile(self.latencies, percent), 3)) for percent in PERCENTILES]
        return found


def one(stage: Stage, sample: Sample, topic: str, rate: float, seconds: float, start) -> None:
    """`start(seconds, out)` begins the load, which writes its times to the file `out`."""
    seconds += WARM_UP_SECONDS
    out = stage.directory / topic
    stage.kafka.create_topic(topic, PARTITIONS)
    with start(seconds, out) as child:
        try:
            arrived = consume_during(stage, topic, child, int(rate * seconds))
        except BaseException:
            child.kill()
            raise
        told = finish(child)
    sample.add(out, arrived, rate, told.get("worst_lag_ms", 0))


def at_rate(stage: Stage, db: Database, rate: int, seconds: float) -> tuple[dict, dict]:
    """Both ways in turns, so that both see the same machine and a broker equally warm."""
    ours, alone = Sample(), Sample()
    worker = stage.wait_for_worker(db)
    cpu = 0.0
    for turn in range(1, TURNS + 1):
        topic, aggregate_type = f"alone-at-{rate}-{turn}", f"At{rate}-{turn}"
        one(stage, alone, topic, rate, seconds / TURNS, lambda seconds, out: stage.produce(topic, "pace", rate, seconds, out))
        before = Cpu.now(worker, stage.broker_pid)
        one(stage, ours, f"outbox.event.{aggregate_type}", rate, seconds / TURNS,
            lambda seconds, out: stage.program("commit", db.pg.dsn(db.name), aggregate_type, rate, seconds, CONNECTIONS, out))
        cpu += Cpu.now(worker, stage.broker_pid).since(before).worker
    delivered = rate * (seconds + TURNS * WARM_UP_SECONDS)
    return ours.figures() | {"cpu_us_per_event": cpu / delivered * 1e6}, alone.figures()


def measure(stage: Stage, results: Results, plan: list[tuple[int, int]]) -> None:
    with stage.database("latency") as db:
        stage.kafka_sink(db)
        at_rate(stage, db, WARM_UP_RATE, 2)  # the broker's compiler has seen both
        for rate, seconds in plan:
            ours, alone = at_rate(stage, db, rate, seconds)
            wait_until(lambda: db.value("SELECT NOT EXISTS (SELECT FROM outbox.events)"), 30, "an empty table")
            stage.must_be_done(db)
            progress(f"at {rate:,}/s: outbox p50 {ours['p50_ms']:.2f}, p99 {ours['p99_ms']:.2f} ms, of it COMMIT itself "
                     f"{ours['commit_p50_ms']:.2f} and {ours['commit_p99_ms']:.2f}; librdkafka alone p50 {alone['p50_ms']:.2f}, "
                     f"p99 {alone['p99_ms']:.2f}")
            results.data[f"{rate}/s"] = {"outbox": ours, "librdkafka_alone": alone}
            for name, goals in (("p50", [at_most(2)]), ("p99", [at_most(8), ratio_at_most(1.5)])):
                key = f"{name}_ms"
                results.rows.append(Row(f"commit → consumer at {rate:,}/s, {name}", ours[key], "ms", alone[key], "librdkafka alone", goals=goals,
                                        either=True, limit=f"COMMIT itself {ours['commit_' + key]:.2f} ms"))
            results.rows.append(Row("  CPU of the worker per event", ours["cpu_us_per_event"], "µs"))
