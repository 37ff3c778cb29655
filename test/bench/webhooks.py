"""Webhooks per second to a local nginx, which is never the limit."""

import time
from pathlib import Path

from measure import Cpu
from outbox_rig import wait_until
from results import Failure, Results, Row, at_least
from stage import SECRET, Stage, progress
from watch import Watch

KEYS = 10000
CONCURRENCIES = (32, 256)


def measure(stage: Stage, results: Results, events: int) -> None:
    log = stage.directory / "access.log"
    nginx = stage.rig.nginx(locations=f"access_log {log} combined buffer=64k flush=200ms; location / {{ return 204; }}")
    results.data["keys"] = KEYS
    for concurrency in CONCURRENCIES:
        log.write_text("")
        with stage.database(f"webhooks{concurrency}") as db:
            db.webhook_sink("main", nginx.url + "/hooks", secret=SECRET, concurrency=str(concurrency))
            stage.pause(db)
            db.sql(f"""INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload)
                       SELECT 'Order', 'k' || n % {KEYS}, 'order.created', jsonb_build_object('n', n, 'note', repeat('x', 270))
                       FROM generate_series(1, {events}) AS n""")
            watch, started = Watch(stage, db, events), time.monotonic()
            stage.switch(True)
            worker = stage.wait_for_worker(db)
            before = Cpu.now(worker, 0)
            watch.finish(60)
            seconds = watch.samples[-1][0] - started
            cpu = Cpu.now(worker, 0).since(before)
            wait_until(lambda: db.value("SELECT NOT EXISTS (SELECT FROM outbox.events)"), 30, "an empty table")
            stage.must_be_done(db)
        must_have_arrived(log, events)
        rate = events / seconds
        results.data[f"concurrency_{concurrency}"] = {"rate": rate, "seconds": seconds, "cpu_us_per_event": cpu.worker / events * 1e6,
                                                      "worker_memory_mb": watch.memory / 2**20, "cores_busy": cpu.shares(), "limit": cpu.limit()}
        progress(f"concurrency {concurrency}: {rate:,.0f} webhooks/s, {cpu.worker / events * 1e6:.0f} µs of CPU each")
        results.rows.append(Row(f"webhooks to nginx, {KEYS:,} keys, concurrency {concurrency}", rate, "requests/s",
                                goals=[at_least(15_000)] if concurrency == max(CONCURRENCIES) else [], limit=cpu.limit()))
    nginx.stop()


def must_have_arrived(log: Path, events: int) -> None:
    """One request for each event, each answered 204."""
    def answered() -> int:
        return sum(b'"POST /hooks HTTP/1.1" 204 ' in line for line in log.read_bytes().splitlines())
    wait_until(lambda: answered() >= events, 10, f"{events} requests in nginx's log", interval=0.2)
    if answered() != events:
        raise Failure(f"nginx answered {answered()} requests for {events} events")
