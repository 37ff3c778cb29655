"""Webhooks per second to a local nginx, beside what wrk alone sends to it; and events per second when a request
carries several."""

import re
import subprocess
import time
from collections import defaultdict
from urllib.parse import urlsplit

from measure import Cpu
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.process import free_port
from results import Failure, Results, Row, at_least, ratio_at_least
from stage import SECRET, Stage, progress
from watch import Watch

KEYS = 10_000
CONCURRENCIES = (32, 256)
BATCH = "100"
FAR_RATE = 1000
WRK_SECONDS = 5
# The headers and the size of a webhook of ours.
WRK_REQUEST = """\
wrk.method = "POST"
wrk.body = string.rep("x", 300)
wrk.headers["content-type"] = "application/json"
wrk.headers["webhook-id"] = "0197d2ab-0000-7000-8000-000000000000"
wrk.headers["webhook-timestamp"] = "1700000000"
wrk.headers["webhook-signature"] = "v1," .. string.rep("x", 44)
"""


class AccessLog:
    """The log of an nginx with one process: per response 204 a line with its webhook-id, in order."""

    def __init__(self, stage: Stage):
        self._path = stage.directory / "access.log"
        self.locations = f"access_log {self._path} ids buffer=64k flush=200ms; location / {{ return 204; }}"

    def empty(self) -> None:
        self._path.write_text("")

    def _answered(self) -> dict[str, list[str]]:
        """Ids by path."""
        found = defaultdict(list)
        for line in self._path.read_text().splitlines():
            status, path, event = line.split()
            if status == "204":
                found[path].append(event)
        return found

    def must_hold(self, path: str, arriving: dict[str, tuple[str, int]]) -> None:
        """Each of these events once, in the order of its key; `arriving` is the result of expected() before they
        were sent."""
        wait_until(lambda: len(self._answered()[path]) >= len(arriving), 10, f"{len(arriving)} requests in nginx's log", interval=0.2)
        answered, last = self._answered()[path], {}
        if len(answered) != len(arriving) or set(answered) != set(arriving):
            raise Failure(f"nginx answered {len(answered)} requests on {path} for {len(set(answered))} events, {len(arriving)} were enqueued")
        for event in answered:
            key, position = arriving[event]
            if position <= last.get(key, 0):
                raise Failure(f"event {event} of key {key} came after a later one on {path}")
            last[key] = position


def expected(db: Database, sink: str) -> dict[str, tuple[str, int]]:
    """Key and position of each pending event, by id."""
    return {str(event): (key, position) for event, key, position in
            db.sql("SELECT id, partition_key, position FROM outbox.events_pending WHERE sink = %s", sink)}


def ours(stage: Stage, url: str, log: AccessLog, name: str, events: int, concurrency: int, **options: str) -> dict:
    """From switching delivery on to the last recorded delivery; checks that each event arrived once and in the order
    of its key. (Of a request with several events the log has no ids of events: test/webhook/test_batches.py looks at
    them.)"""
    log.empty()
    with stage.database(name) as db:
        db.webhook_sink("main", url + "/hooks", secret=SECRET, concurrency=str(concurrency), **options)
        stage.pause(db)
        stage.load(db, "wide", events, "Order")
        arriving = expected(db, "main")
        watch, started = Watch(stage, db, events), time.monotonic()
        stage.switch(True)
        worker = stage.wait_for_worker(db)
        before = Cpu.now(worker, 0)
        watch.finish(60)
        seconds = watch.samples[-1][0] - started
        cpu = Cpu.now(worker, 0).since(before)
        wait_until(lambda: db.value("SELECT NOT EXISTS (SELECT FROM outbox.events)"), 30, "an empty table")
        stage.must_be_done(db)
    if "batch" not in options:
        log.must_hold("/hooks", arriving)
    rate, cost = events / seconds, cpu.worker / events * 1e6
    said = "".join(f", {name} {value}" for name, value in options.items())
    progress(f"concurrency {concurrency}{said}: {rate:,.0f} events/s, {cost:.1f} µs of CPU each")
    return {"rate": rate, "seconds": seconds, "cpu_us_per_event": cost, "worker_memory_mb": watch.memory / 2**20, "cores_busy": cpu.shares(),
            "limit": cpu.limit()}


def wrk_alone(stage: Stage, url: str, concurrency: int) -> float:
    """Requests per second of wrk with one thread, as outbox has one for HTTP: no database, no order, nothing recorded."""
    script = stage.directory / "wrk.lua"
    script.write_text(WRK_REQUEST)
    printed = subprocess.run(["wrk", "-t1", f"-c{concurrency}", f"-d{WRK_SECONDS}s", "-s", script, url + "/wrk"], capture_output=True, text=True, check=True).stdout
    if re.search("Non-2xx|Socket errors", printed):
        raise Failure(printed)
    rate = float(re.search(r"Requests/sec: *([0-9.]+)", printed)[1])
    progress(f"wrk alone, {concurrency} connections: {rate:,.0f} requests/s")
    return rate


def measure(stage: Stage, results: Results, events: int) -> None:
    log = AccessLog(stage)
    nginx = stage.rig.nginx(locations=log.locations)
    results.data["keys"] = KEYS
    for concurrency in CONCURRENCIES:
        found = results.data[f"concurrency_{concurrency}"] = ours(stage, nginx.url, log, f"webhooks{concurrency}", events, concurrency)
        log.empty()
        found["wrk"] = wrk_alone(stage, nginx.url, concurrency)
        results.rows.append(Row(f"webhooks to nginx, {KEYS:,} keys, concurrency {concurrency}", found["rate"], "requests/s", found["wrk"], "wrk alone",
                                goals=[at_least(15_000)] if concurrency == max(CONCURRENCIES) else [], limit=found["limit"]))
    single = results.data[f"concurrency_{CONCURRENCIES[0]}"]["rate"]
    found = results.data["batch"] = ours(stage, nginx.url, log, "batches", 5 * events, CONCURRENCIES[0], batch=BATCH)
    results.rows.append(Row(f"events to nginx, {BATCH} in a request, concurrency {CONCURRENCIES[0]}", found["rate"], "events/s", single, "one in a request",
                            goals=[ratio_at_least(5)], limit=found["limit"]))
    nginx.stop()


def latency(stage: Stage, url: str, seconds: float, **options: str) -> dict[str, float]:
    """From commit to the acknowledgement of the endpoint, at 1,000 events a second of random keys."""
    with stage.database("webhooks_latency") as db:
        db.webhook_sink("main", url + "/hooks", secret=SECRET, retention="1h", **options)
        with db.connect() as connection:
            connection.execute("SET synchronous_commit = off")  # the disk is not what is measured
            began, count = time.monotonic(), int(FAR_RATE * seconds)
            for n in range(count):
                time.sleep(max(0, began + n / FAR_RATE - time.monotonic()))
                connection.execute("SELECT outbox.enqueue('Order', %s::text, 'order.paid', jsonb_build_object('x', repeat('x', 280)))", [n])
        wait_until(lambda: db.value("SELECT count(*) FROM outbox.events WHERE status = 'SENT'") == count, 60, "the events to be delivered")
        [(times,)] = db.sql("""SELECT percentile_cont(ARRAY[0.5, 0.99, 0.999]) WITHIN GROUP (ORDER BY extract(epoch FROM sent_at - created_at) * 1000)
                               FROM outbox.events WHERE status = 'SENT'""")
        return dict(zip(("p50", "p99", "p99.9"), map(float, times)))


def distance(stage: Stage, results: Results, round_trip_ms: float, seconds: float, events: int) -> None:
    """Through a proxy that delays each byte: the rate is at most concurrency / round trip, unless a request carries several events."""
    log = AccessLog(stage)
    nginx, port = stage.rig.nginx(locations=log.locations), free_port()
    url, where = f"http://127.0.0.1:{port}", f"{round_trip_ms:g} ms away"
    with stage.program("delay", port, urlsplit(nginx.url).port, int(round_trip_ms * 500)) as proxy:
        proxy.stdout.readline()
        try:
            for concurrency in CONCURRENCIES:
                found = results.data[f"concurrency_{concurrency}"] = ours(stage, url, log, f"far{concurrency}", events, concurrency)
                found["wrk"] = wrk_alone(stage, url, concurrency)
                results.rows.append(Row(f"webhooks, {where}, concurrency {concurrency}", found["rate"], "requests/s", found["wrk"], "wrk alone", limit=found["limit"]))
            found = results.data["batch"] = ours(stage, url, log, "farbatch", 5 * events, CONCURRENCIES[0], batch=BATCH)
            results.rows.append(Row(f"events by webhooks, {BATCH} in a request, {where}, concurrency {CONCURRENCIES[0]}", found["rate"], "events/s", limit=found["limit"]))
            for said, options in (("", {}), (f", {BATCH} in a request", {"batch": BATCH})):
                found = results.data["latency" + said] = latency(stage, url, seconds, **options)
                progress(f"at {FAR_RATE:,}/s{said}: " + ", ".join(f"{name} {time:.2f} ms" for name, time in found.items()))
                results.rows += [Row(f"commit → acknowledgement by webhook at {FAR_RATE:,}/s, {where}{said}, {name}", time, "ms") for name, time in found.items()]
        finally:
            proxy.kill()
    nginx.stop()
