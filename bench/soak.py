"""Half an hour at a constant rate: what grows?"""

import threading
import time
from dataclasses import asdict, dataclass

from latency import ENQUEUE
from measure import Cpu, private_memory
from outbox_rig import wait_until
from outbox_rig.database import Database
from results import Results, Row, at_least, ratio_at_most
from stage import PARTITIONS, Stage, finish, progress

RATE = 5000
CONNECTIONS = 8
SAMPLES = 120


@dataclass
class Sample:
    seconds: float
    table: int
    indexes: int
    memory: int
    pending: int


class Sampler(threading.Thread):
    """Records the size of the pending partition and the worker's private memory until it is stopped."""

    def __init__(self, stage: Stage, db: Database, interval: float):
        super().__init__(daemon=True)
        self.samples: list[Sample] = []
        self._stage, self._db, self._interval, self._over = stage, Database(db.pg, db.name), interval, threading.Event()
        self.start()

    def run(self) -> None:
        started = time.monotonic()
        while not self._over.wait(self._interval):
            # The whole table, with TOAST and free space maps; the backlog is an estimate from the counters.
            [(indexes, table)] = self._db.sql("SELECT pg_indexes_size(oid), pg_table_size(oid) FROM (SELECT 'outbox.events_pending'::regclass AS oid) AS t")
            [worker] = self._stage.workers(self._db)
            pending = self._db.value("SELECT n_live_tup FROM pg_stat_user_tables WHERE relname = 'events_pending'")
            self.samples.append(Sample(round(time.monotonic() - started, 1), table, indexes, private_memory(worker), pending))
        self._db.disconnect()

    def stop(self) -> None:
        self._over.set()
        self.join(20)


def measure(stage: Stage, results: Results, seconds: float) -> None:
    stage.kafka.create_topic("outbox.event.Soak", PARTITIONS)
    with stage.database("soak") as db:
        stage.kafka_sink(db)
        worker = stage.wait_for_worker(db)
        before, sampler = Cpu.now(worker, stage.broker_pid), Sampler(stage, db, seconds / SAMPLES)
        with stage.program("commit", db.pg.dsn(db.name), ENQUEUE, "Soak", RATE, seconds, CONNECTIONS, "/dev/null") as child:
            told = finish(child, seconds * 1.5 + 60)
        cpu = Cpu.now(worker, stage.broker_pid).since(before)
        wait_until(lambda: not db.pending(), 60, "an empty table")
        sampler.stop()
        stage.must_be_done(db)
        stage.must_have_arrived("outbox.event.Soak", told["events"])
    early = next(sample for sample in sampler.samples if sample.seconds >= seconds / 6)  # 5 of the 30 minutes
    last = sampler.samples[-1]
    rate = told["events"] / cpu.wall
    progress(f"{told['events']:,} events at {rate:,.0f}/s, each arrived once and in order; the load was never later than {told['worst_lag_ms']:.0f} ms")
    results.data |= {"samples": [asdict(sample) for sample in sampler.samples], "cores_busy": cpu.shares()}
    after = f"after {seconds / 360:.3g} min"
    results.rows += [
        Row(f"soak, {seconds / 60:.3g} min at {RATE:,} events/s", rate, "events/s", goals=[at_least(0.98 * RATE)], limit=cpu.limit()),
        Row("  pending table at the end", last.table / 2**20, "MB", early.table / 2**20, after, goals=[ratio_at_most(2)]),
        Row("  its indexes at the end", last.indexes / 2**20, "MB", early.indexes / 2**20, after, goals=[ratio_at_most(2)]),
        Row("  the worker's own memory at the end", last.memory / 2**20, "MB", early.memory / 2**20, after, goals=[ratio_at_most(1.1)]),
        Row("  CPU of the worker per event", cpu.worker / told["events"] * 1e6, "µs"),
    ]
