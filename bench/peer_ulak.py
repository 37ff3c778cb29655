"""Webhooks compared with ulak (github.com/zeybek/ulak), on a server of its own with its default settings; both post to
the same nginx.

ULAK=/path/to/its/checkout bench/run peers-webhooks"""

import os
import time

import webhooks
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.nginx import Nginx
from results import Failure, Results, Row, ratio_at_least
from stage import SETTINGS, Stage, progress

# Four workers, 200 messages per batch, 10 connections each: the defaults are what its README recommends.
ULAK = {"shared_preload_libraries": "ulak", "ulak.database": "postgres", "ulak.http_allow_internal_urls": "on"}
PAYLOADS = "SELECT array_agg(jsonb_build_object('n', n, 'note', repeat(md5(n::text), 8))) FROM generate_series(1, {}) AS n"


class Rival:
    def __init__(self, stage: Stage, nginx: Nginx, log):
        self.pg = stage.rig.postgres(settings=SETTINGS | ULAK)
        self.db, self._log = Database(self.pg, "postgres"), log
        self.db.sql("CREATE EXTENSION ulak")
        self.db.sql("SELECT ulak.create_endpoint('nginx', 'http', jsonb_build_object('url', %s::text, 'method', 'POST'))", f"{nginx.url}/ulak")

    def close(self) -> None:
        self.db.disconnect()
        self.pg.close()

    def answered(self) -> int:
        return self._log.read_bytes().count(b" 204 ")

    def drain(self, events: int) -> dict:
        """From the commit of a transaction that sends all events to the last response."""
        self._log.write_text("")
        before = self.enqueue(events)
        started = time.monotonic()
        wait_until(lambda: self.answered() >= events, 120, lambda: f"{events} requests by ulak in nginx's log; it has {self.answered()}", interval=0.05)
        seconds = time.monotonic() - started
        wait_until(lambda: not self.db.value("SELECT count(*) FROM ulak.queue WHERE status <> 'completed'"), 30, "ulak to record its deliveries")
        if self.answered() != events:
            raise Failure(f"nginx answered {self.answered()} requests for {events} messages of ulak")
        progress(f"ulak: {events / seconds:,.0f} webhooks/s (enqueued at {events / before:,.0f}/s)")
        return {"rate": events / seconds, "seconds": seconds, "enqueue_rate": events / before}

    def enqueue(self, events: int) -> float:
        started = time.monotonic()
        self.db.sql(f"SELECT ulak.send_batch('nginx', ({PAYLOADS.format(events)}))")
        return time.monotonic() - started


def measure(stage: Stage, results: Results, events: int, ours: int, rounds: int) -> None:
    if not os.environ.get("ULAK"):
        progress("skipped: set ULAK to a checkout of github.com/zeybek/ulak")
        return
    log, rival_log = webhooks.AccessLog(stage), stage.directory / "ulak.log"
    rival_log.touch()
    nginx = stage.rig.nginx(locations=log.locations + f" location /ulak {{ access_log {rival_log} combined buffer=64k flush=100ms; return 204; }}")
    rival, mine, theirs = Rival(stage, nginx, rival_log), [], []
    try:
        rival.drain(500)  # its workers have started
        for number in range(1, rounds + 1):
            mine.append(webhooks.ours(stage, nginx.url, log, f"beside_ulak{number}", ours, max(webhooks.CONCURRENCIES)))
            theirs.append(rival.drain(events))
    finally:
        rival.close()
        nginx.stop()
    results.data |= {"outbox": mine, "ulak": theirs}
    results.rows.append(Row(f"webhooks to nginx, best of {rounds} each", max(one["rate"] for one in mine), "requests/s", max(one["rate"] for one in theirs),
                            "ulak, 4 workers", goals=[ratio_at_least(10)]))
