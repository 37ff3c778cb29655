"""From just before COMMIT to the consumer's poll, beside librdkafka alone from produce to poll."""

import re
import subprocess
import time
from pathlib import Path

from measure import Cpu, percentile
from outbox_rig import wait_until
from stage import PARTITIONS, Failure, Results, Row, Stage, finish, progress

CONNECTIONS = 4
WARM_UP_SECONDS = 2
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
                n = int(NUMBER.match(message.value(), 1)[1])
                if arrived[n]:
                    raise Failure(f"event {n} arrived twice")
                arrived[n] = at
                missing -= 1
            elif child.poll() is not None:  # nothing for a second, and nothing more is sent
                if child.returncode:
                    raise Failure(f"{child.args[0].name} ended with code {child.returncode}")
                deadline = deadline or time.monotonic() + 30
                if time.monotonic() > deadline:
                    raise Failure(f"{missing} of {events} events never arrived")
    finally:
        consumer.close()
    return arrived


def figures(path: Path, arrived: list[float], rate: float) -> dict:
    times = [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
    counted = range(int(rate * WARM_UP_SECONDS), len(times))
    latencies = [(arrived[n] - times[n][0]) / 1000 for n in counted]
    commits = [(times[n][1] - times[n][0]) / 1000 for n in counted if times[n][1]]
    found = {"events": len(latencies), "p50_ms": percentile(latencies, 50), "p90_ms": percentile(latencies, 90),
             "p99_ms": percentile(latencies, 99), "max_ms": max(latencies)}
    if commits:
        found |= {"commit_p50_ms": percentile(commits, 50), "commit_p99_ms": percentile(commits, 99)}
    return found


def one(stage: Stage, topic: str, rate: float, seconds: float, start) -> dict:
    """`start(out)` begins the load, which writes its times to `out`."""
    seconds += WARM_UP_SECONDS
    out = stage.directory / topic
    with start(seconds, out) as child:
        try:
            arrived = consume_during(stage, topic, child, int(rate * seconds))
        except BaseException:
            child.kill()
            raise
        told = finish(child)
    return figures(out, arrived, rate) | told


def measure(stage: Stage, results: Results, plan: list[tuple[int, int]]) -> None:
    data = results.data["latency"] = {}
    with stage.database("latency") as db:
        stage.kafka_sink(db)
        worker = stage.wait_for_worker(db)
        for rate, seconds in plan:
            alone_topic, aggregate_type = f"alone-at-{rate}", f"At{rate}"
            topic = f"outbox.event.{aggregate_type}"
            for name in (alone_topic, topic):
                stage.kafka.create_topic(name, PARTITIONS)
            alone = one(stage, alone_topic, rate, seconds,
                        lambda seconds, out: stage.produce(alone_topic, "pace", rate, seconds, out))
            progress(f"librdkafka alone at {rate:,}/s: p50 {alone['p50_ms']:.2f} ms, p99 {alone['p99_ms']:.2f} ms")
            before = Cpu.now(worker, stage.broker_pid)
            ours = one(stage, topic, rate, seconds,
                       lambda seconds, out: stage.program("commit", db.pg.dsn(db.name), aggregate_type, rate, seconds, CONNECTIONS, out))
            cpu = Cpu.now(worker, stage.broker_pid).since(before)
            ours |= {"cpu_us_per_event": cpu.worker / ours["events"] * 1e6, "cores_busy": cpu.shares()}
            wait_until(lambda: db.value("SELECT NOT EXISTS (SELECT FROM outbox.events)"), 30, "an empty table")
            stage.must_be_done(db)
            progress(f"outbox at {rate:,}/s: p50 {ours['p50_ms']:.2f} ms, p99 {ours['p99_ms']:.2f} ms, of it COMMIT itself "
                     f"{ours['commit_p50_ms']:.2f} and {ours['commit_p99_ms']:.2f} ms")
            data[f"{rate}/s"] = {"outbox": ours, "librdkafka_alone": alone}
            for name, key in (("p50", "p50_ms"), ("p99", "p99_ms")):
                results.rows.append(Row(f"commit → consumer at {rate:,}/s, {name}", f"{ours[key]:.2f} ms", f"{alone[key]:.2f} ms librdkafka alone",
                                        ours[key] / alone[key], None, f"COMMIT itself {ours['commit_' + key]:.2f} ms"))
