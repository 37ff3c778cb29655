"""The real parts of a run: started once, broken and repaired in all cycles."""

import time
from pathlib import Path
from typing import Any

import psycopg
from history import History
from outbox_rig import Rig, wait_until
from outbox_rig.clock import Clock
from outbox_rig.database import Database
from outbox_rig.receiver import SECRET
from pulse import Pulse
from sinks import Endpoint, Topic
from writers import all_keys

MAX_IN_FLIGHT = 40  # small, so that the bound on duplicates is tested
STUCK_S = 20  # give up when nothing changes for this many seconds although every part is healthy
SCHEMA = Path(__file__).with_name("schema.sql")


class World:
    def __init__(self, rig: Rig):
        self.clock = Clock(rig.dir / "clock")
        self.pg = rig.postgres(settings={"outbox.max_in_flight": str(MAX_IN_FLIGHT), "outbox.poll_interval": "1s",
                                         "max_prepared_transactions": "50"}, env=self.clock.env())
        self.kafka = rig.kafka(jit=False)
        self.endpoint = Endpoint(rig.receiver(secret=SECRET))
        self.topic = Topic(self.kafka)
        self.db = Database(self.pg, "chaos")
        self.db.create()
        self.db.sql(SCHEMA.read_text())
        self.db.sql("INSERT INTO chaos.aggregates SELECT unnest(%s::text[])", all_keys())
        retry = {"retry": "exponential 50ms..500ms", "max_attempts": "12"}
        self.db.kafka_sink("kafka", self.kafka, **retry)
        # Events are kept for a day, so that both ways of recording a delivery are used.
        self.db.webhook_sink("crm", self.endpoint.receiver, SECRET, timeout="2s", retention="1d", **retry)
        self.workers = self._workers_before = 1
        self.pulse = Pulse()

    def close(self) -> None:
        self.db.disconnect()

    def sql(self, query: str, *parameters: Any) -> list[tuple]:
        """Runs a statement as soon as the server accepts it; only for statements that may run twice."""
        def answer():
            try:
                return [self.db.sql(query, *parameters)]
            except psycopg.OperationalError:
                self.db.disconnect()

        return wait_until(answer, 60, f"an answer to: {query}", 0.1)[0]

    def pending(self) -> int:
        return self.sql("SELECT count(*) FROM outbox.events_pending")[0][0]

    def waits_for_its_time(self) -> bool:
        """The row of a failed event contains the time of its next attempt, which is late if the clock was set back."""
        return self.sql("SELECT EXISTS (SELECT FROM outbox.events_pending WHERE available_at > clock_timestamp())")[0][0]

    def set_workers(self, n: int) -> None:
        self._workers_before = max(self._workers_before, self.workers)
        self.workers = n
        self.sql(f"ALTER SYSTEM SET outbox.workers = {n}")
        self.sql("SELECT pg_reload_conf()")

    def bound(self) -> int:
        """The maximum number of events in flight, including those of exiting workers."""
        return MAX_IN_FLIGHT * max(self.workers, self._workers_before)

    # ---- the end of a cycle ------------------------------------------------------------------------------------

    def drain(self) -> float:
        """Waits until nothing is pending, or nothing changes any more. Returns seconds."""
        started = moved = time.monotonic()
        before = -1
        while (pending := self.pending()) and time.monotonic() < moved + STUCK_S:
            if pending != before or (time.monotonic() > moved + STUCK_S / 2 and self.waits_for_its_time()):
                before, moved = pending, time.monotonic()
            time.sleep(0.02)
        wait_until(lambda: self.sql("SELECT count(*), min(workers), max(workers) FROM outbox.workers WHERE database = %s", self.db.name)
                   == [(self.workers, self.workers, self.workers)], 90, f"{self.workers} workers", 0.05)
        self._workers_before = self.workers
        # Events that were deleted or given up while in flight may still be at the sinks.
        still = time.monotonic() + 5
        while self.endpoint.receiver.open_requests and time.monotonic() < still:
            time.sleep(0.02)
        return time.monotonic() - started

    def observe(self, histories: dict[int, History], cycle_of: dict[str, int], history: History) -> set[int]:
        """Assigns arrivals to the cycles of their events and settles this cycle. Returns the cycles with new
        arrivals."""
        touched = {history.cycle}
        history.settle({str(id): n for id, n in self.sql("SELECT id, n FROM chaos.ledger WHERE cycle = %s", history.cycle)})
        # After a synchronous commit, all rows that are checked survive the next crash.
        self.sql("SET synchronous_commit = on")
        self.sql("INSERT INTO chaos.ledger VALUES (gen_random_uuid(), 0, 0)")
        # Read the table first: an event that has left it has arrived.
        history.waiting = {(str(id), sink): status for id, sink, status in self.sql(
            "SELECT id, sink, coalesce(status, 'PENDING') FROM outbox.events WHERE status IS DISTINCT FROM 'SENT'")}
        for arrival in self.topic.read() + self.endpoint.read():
            cycle = cycle_of.get(arrival.id or arrival.body_id, history.cycle)
            histories[cycle].arrivals.append(arrival)
            touched.add(cycle)
        return touched

    def state(self) -> list[str]:
        """The state of the server for a report: what an operator would look at."""
        found = [f"  {row}" for row in self.sql("SELECT name, state, pending, blocked, in_flight, failed, last_error FROM outbox.sinks")]
        found += [f"  {row}" for row in self.sql("SELECT * FROM outbox.workers")]
        found += [f"  {row}" for row in self.sql("SELECT \"check\", status, detail FROM outbox.doctor() WHERE status <> 'ok'")]
        return found + [f"  {row}" for row in self.sql(
            "SELECT position, id::text, sink, aggregate_id, attempts, blocked_by, available_at - now(), xact::text, last_error"
            " FROM outbox.events_pending ORDER BY position LIMIT 10")]
