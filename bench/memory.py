"""The worker's private memory in the situations in which it could grow."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from measure import Cpu, private_memory
from outbox_rig import wait_until
from outbox_rig.database import Database
from results import Failure, Results, Row, at_most
from stage import SECRET, Stage, progress
from watch import Watch

LIMIT_MB = 100
MB = 2**20
# A backlog is loaded in parts, so that no failed statement fills the disk with data to roll back.
PIECE = 500_000


class MemoryWatch(threading.Thread):
    """The largest private memory of a database's worker, across restarts, and the value in the view."""

    def __init__(self, db: Database):
        super().__init__(daemon=True)
        self.db, self.peak, self.last, self.done = db, 0, 0, threading.Event()

    def run(self) -> None:
        with self.db.connect() as connection:
            while not self.done.wait(0.05):
                for pid, in connection.execute("SELECT pid FROM outbox.workers WHERE database = current_database()"):
                    try:
                        self.last = private_memory(pid)
                    except (OSError, TypeError):
                        continue  # it has just ended
                    self.peak = max(self.peak, self.last)


@contextmanager
def watched(results: Results, db: Database, what: str) -> Iterator[None]:
    """Adds the peak as a row."""
    watch = MemoryWatch(db)
    started = time.monotonic()
    watch.start()
    try:
        yield
    finally:
        watch.done.set()
        watch.join()
        progress(f"{what}: at most {watch.peak / MB:.1f} MB, at the end {watch.last / MB:.1f} MB ({time.monotonic() - started:.0f} s)")
    results.rows.append(Row(f"memory, {what}", watch.peak / MB, "MB", goals=[at_most(LIMIT_MB)], limit=f"at the end {watch.last / MB:.1f} MB"))


def load(db: Database, events: int, keys: int, aggregate_type: str = "Order", payload: str = "jsonb_build_object('n', n)",
         headers: str = "NULL") -> None:
    for first in range(1, events + 1, PIECE):
        last = min(first + PIECE - 1, events)
        db.sql(f"""INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, headers)
                   SELECT '{aggregate_type}', '{aggregate_type}-' || n % {keys}, 'order.created', {payload}, {headers}
                   FROM generate_series({first}, {last}) AS n""")


def look_on(seconds: float) -> None:
    """No condition to wait for: this is the duration of the measurement."""
    time.sleep(seconds)


def spent(worker: int) -> float:
    """CPU seconds of the worker's first thread."""
    return Cpu.now(worker, 0).worker_main


def share(worker: int, seconds: float) -> float:
    """The load of the worker's first thread in per cent of a core, measured over this time."""
    before = spent(worker)
    look_on(seconds)
    return (spent(worker) - before) / seconds * 100


def backlog(stage: Stage, results: Results, events: int) -> None:
    """A backlog while it goes to webhooks, while the broker is down, and while it drains into Kafka."""
    nginx = stage.rig.nginx()
    with stage.database("backlog") as db:
        db.webhook_sink("main", nginx.url, SECRET, concurrency="64")
        stage.pause(db)
        load(db, events, 1_000_000)
        progress(f"{events:,} events wait")
        stage.switch(True)
        stage.wait_for_worker(db)
        with watched(results, db, f"{events:,} waiting, webhooks"):
            webhooks = Watch(stage, db, events, interval=0.2)
            look_on(30)
            webhooks.stop()
            done = webhooks.done()
        progress(f"  {done:,} webhooks delivered")
        stage.kafka.stop()
        db.sql("DROP SERVER main CASCADE")
        stage.kafka_sink(db)
        with watched(results, db, f"{events - done:,} waiting, broker down"):
            wait_until(lambda: db.value("SELECT state = 'circuit open' FROM outbox.sinks"), 60, "the circuit to open")
            look_on(10)
        stage.kafka.start()
        with watched(results, db, f"{events - done:,} waiting, drained into Kafka"):
            Watch(stage, db, db.pending(), interval=0.2).finish(900)
            wait_until(lambda: not db.pending(), 60, "an empty table")
    nginx.stop()


def blocked(stage: Stage, results: Results, keys: int, behind: int = 2) -> None:
    """Keys that each wait for a failing event of their own; also after a restart."""
    nginx = stage.rig.nginx(locations="location / { if ($http_x_bad) { return 422; } return 204; }")
    with stage.database("blocked") as db:
        db.webhook_sink("main", nginx.url, SECRET, concurrency="64", forward_headers="x-bad", retry="1d", max_attempts="1000")
        stage.pause(db)
        load(db, keys * (1 + behind), keys, headers=f"CASE WHEN n <= {keys} THEN jsonb '{{\"x-bad\": \"1\"}}' END")
        stage.switch(True)
        worker = stage.wait_for_worker(db)
        held = "SELECT count(*) FROM outbox.events_pending WHERE blocked_by IS NOT NULL"
        with watched(results, db, f"{keys:,} keys become blocked, {behind} rows behind each"):
            wait_until(lambda: db.value(held) == keys * behind, 900, lambda: f"all rows to be marked: {db.value(held)}", interval=1)
        with watched(results, db, f"{keys:,} keys stay blocked"):
            progress(f"  idle, it uses {share(worker, 15):.1f} % of a core")
        others(stage, db, "with the blocked keys")
        db.sql("SELECT pg_terminate_backend(%s)", worker)
        wait_until(lambda: stage.workers(db) not in ([], [worker]), 30, "a new worker")
        started = time.monotonic()
        with watched(results, db, f"{keys:,} blocked keys after a restart"):
            others(stage, db, "after the restart")
            progress(f"  the first {OTHERS:,} other events were through {time.monotonic() - started:.1f} s after the restart")
        if db.value("SELECT count(*) FROM outbox.events_pending") != keys * (1 + behind) or db.value(held) != keys * behind:
            raise Failure("blocked events were delivered")
    nginx.stop()


OTHERS = 20_000


def others(stage: Stage, db: Database, what: str) -> None:
    """Events of other keys continue; the row shows at which cost."""
    worker = stage.wait_for_worker(db)
    before, delivered, started = spent(worker), stage.delivered(db), time.monotonic()
    load(db, OTHERS, 1000, payload="'{}'", aggregate_type="Other")
    wait_until(lambda: stage.delivered(db) - delivered == OTHERS, 120, lambda: f"the other keys: {stage.delivered(db) - delivered}")
    progress(f"  {what}: {OTHERS / (time.monotonic() - started):,.0f} other events/s, "
             f"{(spent(worker) - before) / OTHERS * 1e6:.1f} µs of the worker's main thread each")


def depth(stage: Stage, results: Results, events: int) -> None:
    """Memory does not depend on the number of rows behind a blocked key."""
    nginx = stage.rig.nginx(locations="location / { if ($http_x_bad) { return 422; } return 204; }")
    for behind in (10, events):
        with stage.database(f"depth{behind}") as db:
            db.webhook_sink("main", nginx.url, SECRET, concurrency="64", forward_headers="x-bad", retry="100ms", max_attempts="10000")
            stage.pause(db)
            load(db, 1 + behind, 1, headers="CASE WHEN n = 1 THEN jsonb '{\"x-bad\": \"1\"}' END")
            stage.switch(True)
            worker = stage.wait_for_worker(db)
            with watched(results, db, f"one blocked key with {behind:,} rows behind"):
                wait_until(lambda: db.value("SELECT count(*) FROM outbox.events_pending WHERE blocked_by IS NOT NULL") == behind, 300,
                           "the rows to be marked", interval=0.5)
                progress(f"  failing ten times a second, it uses {share(worker, 10):.1f} % of a core")
                others(stage, db, f"{behind:,} behind")
    nginx.stop()


def hung(stage: Stage, results: Results) -> None:
    """An endpoint that never responds, and large payloads."""
    silent = socket.create_server(("127.0.0.1", 0), backlog=1024)  # the kernel accepts connections, and no program reads from them
    large = "jsonb_build_object('n', n, 'note', (SELECT string_agg(md5((n * 10000 + i)::text), '') FROM generate_series(1, 3200) AS i))"
    for kind in ("webhook", "kafka"):
        with stage.database(f"hung_{kind}") as db:
            if kind == "webhook":
                db.webhook_sink("main", f"http://127.0.0.1:{silent.getsockname()[1]}/", SECRET, concurrency="256", timeout="20s")
            else:
                stage.kafka_sink(db)
                db.enqueue("Order", "0")
                wait_until(lambda: not db.pending(), 30, "the first event")
                os.kill(stage.broker_pid, signal.SIGSTOP)
            try:
                load(db, 3000, 3000, payload=large)
                with watched(results, db, f"{kind} hangs, 3,000 events of 100 kB"):
                    look_on(30)
            finally:
                if kind == "kafka":
                    os.kill(stage.broker_pid, signal.SIGCONT)
            if kind == "kafka":
                with watched(results, db, "Kafka goes on with them"):
                    wait_until(lambda: not db.pending(), 120, "an empty table")
                with watched(results, db, "Kafka, 3,000 more of 100 kB while it is up"):
                    load(db, 3000, 3000, payload=large)
                    wait_until(lambda: not db.pending(), 120, "an empty table")
    silent.close()


def sinks(stage: Stage, results: Results) -> None:
    """Fifty sinks, half of each kind."""
    nginx = stage.rig.nginx()
    with stage.database("sinks") as db:
        for n in range(25):
            db.kafka_sink(f"kafka{n}", stage.kafka, compression_type="lz4")
            db.webhook_sink(f"webhook{n}", nginx.url, SECRET)
        with watched(results, db, "50 sinks, 4,000 events to each"):
            load(db, 4_000, 1000)
            wait_until(lambda: stage.delivered(db) >= 50 * 4_000, 300, lambda: f"all deliveries: {stage.delivered(db)}", interval=0.5)
        with watched(results, db, "50 sinks, idle"):
            look_on(10)
    nginx.stop()
