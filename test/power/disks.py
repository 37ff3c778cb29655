"""make disks CYCLES=n SEED=s: a server under traffic loses its power, or its disk returns an error; then the books are
checked. The seed determines what the writers do and which fault hits when; threads and processes run at their own
speed, so a replay repeats the plan, not each interleaving."""

import argparse
import os
import random
import sys
import time
import traceback

import psycopg
from disk import HEAP, Disk
from outbox_rig import Rig, wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import OK, SECRET, slow
from outbox_rig.traffic import Traffic
from outbox_rig.writers import Writers
from plan import Plan, draw

MAX_IN_FLIGHT = 20  # small, so that the bound on duplicates is tested
PATIENCE_S = 60
REACHED_S = 15  # the time in which the call that fails should come
SETTINGS = {
    "outbox.max_in_flight": str(MAX_IN_FLIGHT), "outbox.poll_interval": "1h",  # no poll makes up for a lost wake-up
    # WAL is written often and synced seldom, and tables as well.
    "wal_buffers": "32kB", "wal_writer_flush_after": "1GB", "shared_buffers": "2MB", "max_wal_size": "16MB", "min_wal_size": "4MB",
    "bgwriter_lru_maxpages": "1000", "bgwriter_delay": "10ms",
}


class Broken(Exception):
    """A promise was broken."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cycles", type=int, default=int(os.environ.get("CYCLES") or 20))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6)))
    parser.add_argument("--first", type=int, default=int(os.environ.get("FIRST") or 1), help="the first cycle's number")
    return parser.parse_args()


class Noise(Writers):
    """WAL that nobody waits for: it fills the WAL buffers, and the server writes them without a sync."""

    def __init__(self, db: Database):
        super().__init__(1)
        self._db = db

    def write(self, _: int) -> None:
        connection = None
        while not self.stopping.wait(0.003):
            try:
                if connection is None or connection.closed:
                    connection = self._db.connect()
                connection.execute("SELECT pg_logical_emit_message(false, 'noise', repeat('x', 6000))")
            except psycopg.OperationalError:  # the server was lost
                connection = None
                self.stopping.wait(0.2)


class Run:
    def __init__(self, rig: Rig, seed: int):
        self.seed, self.cycles, self.cuts, self.taken, self.not_reached = seed, 0, 0, 0, 0
        self.bound, self.workers_before = 0, 1  # of duplicates
        self.disk = Disk(rig.dir / "disk")
        self.pg = rig.postgres(settings=SETTINGS, env=self.disk.env(), wal=rig.dir / "postgres" / "wal")
        self.receiver = rig.receiver(secret=SECRET)
        self.db = Database(self.pg, "orders")
        self.db.create()
        self.db.webhook_sink("crm", self.receiver, SECRET)
        self.lost: set[str] = set()  # commits
        self.noise = Noise(self.db)
        self.traffic = Traffic(self.db, "Order", options="-c statement_timeout=20s")

    def cycle(self, plan: Plan) -> str:
        """Returns what happened. Raises Broken."""
        for name, value in (("wal_writer_delay", plan.walwriter_delay), ("outbox.workers", str(plan.workers)),
                            ("outbox.worker_idle_timeout", plan.idle_timeout)):
            self.pg.set(name, value)
        self.traffic.asynchronous, self.traffic.pause = plan.asynchronous, plan.pause
        self.db.disconnect()  # this session would end with the server
        self.receiver.mode = slow(plan.answers_after)
        arrived, before = len(self.receiver.deliveries), self.receiver_ids()
        wait_until(lambda: len(self.receiver.deliveries) > arrived, PATIENCE_S, "a delivery")
        time.sleep(plan.seconds)
        acknowledged, fault = self._fail(plan) if plan.error else self._cut(plan)
        self.cycles += 1
        self.bound += MAX_IN_FLIGHT * max(plan.workers, self.workers_before)
        self.workers_before = plan.workers
        self.traffic.held = plan.silent  # no commit wakes the worker
        self.receiver.mode = OK
        committed = self._survived()
        lost = acknowledged - committed - self.lost
        self.lost |= lost
        if durable := [name for name in lost if not self.traffic.transactions[name].asynchronous]:
            raise Broken(f"PostgreSQL lost {len(durable)} synchronous commits")
        self._wait_for(committed)
        self._check()
        self.traffic.held = False
        return f"{fault}; {len(lost)} commits lost; {len(self.receiver_ids() - before)} events delivered"

    # ---- the faults ------------------------------------------------------------------------------------------------

    def _cut(self, plan: Plan) -> tuple[set[str], str]:
        until = time.monotonic() + plan.patient
        while time.monotonic() < until and not self.disk.is_unsynced():
            time.sleep(0.001)
        self.pg.kill()
        self.traffic.held = plan.silent
        acknowledged = set(self.traffic.acknowledged)
        cut = self.disk.cut(self.pg.data / "pg_wal", plan.dice)
        self.cuts += 1
        self.taken += cut.sectors > 0
        self.pg.start()
        return acknowledged, f"power cut: {cut}"

    def _fail(self, plan: Plan) -> tuple[set[str], str]:
        """A call fails. If that ends the server, it starts again by itself, or is started again."""
        kind, call, nth, error = plan.error
        self.disk.fail(kind, call, nth, error)
        until = time.monotonic() + REACHED_S
        while not self.disk.has_failed and time.monotonic() < until:
            if kind == HEAP:
                self._checkpoint()
            time.sleep(0.02)
        reached = self.disk.has_failed
        self.disk.heal()
        self.not_reached += not reached
        acknowledged = set(self.traffic.acknowledged)
        wait_until(self._back, PATIENCE_S, "the server to come back")
        return acknowledged, f"{kind} {call} number {nth}: {error}" + ("" if reached else " (not reached)")

    def _checkpoint(self) -> None:
        try:
            with self.pg.connect() as admin:
                admin.execute("CHECKPOINT")
        except psycopg.Error:
            pass  # the call has failed

    def _back(self) -> bool:
        try:
            if not self.pg.running():  # a call failed during the recovery
                self.pg.start()
            self.pg.connect().close()
            return True
        except (psycopg.OperationalError, RuntimeError):
            return False

    # ---- the books -------------------------------------------------------------------------------------------------

    def receiver_ids(self) -> set[str]:
        return {d.id for d in self.receiver.accepted()}

    def _survived(self) -> set[str]:
        """The transactions that are in the database, as soon as it can be asked."""
        def rows():
            try:
                return [{str(name) for name, in self.db.sql("SELECT transaction FROM business")}]
            except psycopg.OperationalError:
                self.db.disconnect()

        return wait_until(rows, PATIENCE_S, "the business table")[0]

    def _wait_for(self, committed: set[str]) -> None:
        """All events of these transactions are delivered; no poll of the worker helps."""
        events = {event for name in committed for event, _, _ in self.traffic.transactions[name].events}
        until = time.monotonic() + PATIENCE_S
        while not events <= self.receiver_ids():
            if time.monotonic() > until:
                raise Broken(f"{len(events - self.receiver_ids())} committed events are not delivered after {PATIENCE_S} s:\n" + self.state())
            time.sleep(0.02)

    def _check(self) -> None:
        """No phantom, the order of each key, and the bound on duplicates, for all cycles so far."""
        deliveries = list(self.receiver.deliveries)
        committed = self._survived()
        of_event = {event: (name, key, n) for name, t in list(self.traffic.transactions.items()) for event, key, n in list(t.events)}
        seen: set[str] = set()
        last: dict[str, int] = {}
        for delivery in deliveries:
            if delivery.id not in of_event:
                raise Broken(f"an event that no writer enqueued: {delivery.id}")
            name, key, n = of_event[delivery.id]
            if name not in committed:
                raise Broken(f"a phantom: event {n} of key {key} was delivered, and its transaction {name} is not in the database")
            if delivery.id in seen:
                continue
            seen.add(delivery.id)
            if n < last.get(key, 0):
                raise Broken(f"out of order: event {n} of key {key} after event {last[key]}")
            last[key] = n
        if len(deliveries) - len(seen) > self.bound:
            raise Broken(f"{len(deliveries) - len(seen)} duplicates after {self.cycles} faults, and not {self.bound} at most")

    def finish(self) -> None:
        """The writers end, and everything that is left is delivered."""
        self.traffic.stop()
        self.noise.stop()
        self._wait_for(self._survived())
        wait_until(lambda: self.db.pending() == 0, PATIENCE_S, "the table to be empty")
        self._check()
        self.traffic.check(self.receiver.deliveries, self.bound)

    def judge(self) -> None:
        """The run must have tested something."""
        if self.cuts >= 5 and not self.taken:
            raise Broken("no power cut took anything: the test shows nothing")
        if self.not_reached > max(2, (self.cycles - self.cuts) // 2):
            raise Broken(f"{self.not_reached} of {self.cycles - self.cuts} errors were not reached")

    def state(self) -> str:
        rows = [("pending", self.db.pending()), *self.db.sql("SELECT * FROM outbox.workers"), *self.db.sql("SELECT * FROM outbox.sinks"),
                *self.db.sql("SELECT * FROM outbox.doctor() WHERE status <> 'ok'")]
        return "\n".join(f"  {row}" for row in rows)


def main() -> int:
    given = arguments()
    print(f"disks: {given.cycles} cycles, seed {given.seed}")
    passed, failed = 0, 0
    with Rig("disks") as rig:
        run = Run(rig, given.seed)
        run.traffic.start()
        run.noise.start()
        try:
            for number in range(given.first, given.first + given.cycles):
                began = time.monotonic()
                print(f"cycle {number:3} ", end="")
                print(f"ok  {run.cycle(draw(given.seed, number))}; {time.monotonic() - began:.1f} s")
                passed += 1
            run.finish()
            run.judge()
        except Exception as e:
            failed = 1
            print(f"FAILED  {e if isinstance(e, Broken) else traceback.format_exc()}")
            print(f"log: {run.pg.log}\nagain: make disks SEED={given.seed} FIRST={given.first} CYCLES={min(passed + 1, given.cycles)}")
        finally:
            run.traffic.stopping.set()
            run.noise.stopping.set()
            run.db.disconnect()
    print(f"{passed} cycles passed, {failed} failed; seed {given.seed}; {run.taken} of {run.cuts} power cuts took something; "
          f"{run.not_reached} errors were not reached")
    return failed


if __name__ == "__main__":
    sys.exit(main())
