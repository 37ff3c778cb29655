"""How long outbox.sinks takes while millions of events are pending: without a worker, during a drain, and over dead
rows."""

import time
from datetime import timedelta

from outbox_rig.database import Database
from results import Failure, Results, Row, at_most
from stage import Stage, progress

SINKS = 1000
BOUND = 50  # ms
LOOKS = 15
TRUTH = "SELECT clock_timestamp() - min(created_at) FROM outbox.events_pending WHERE sink = %s"


def look(results: Results, db: Database, what: str) -> None:
    """The slowest of several queries counts, except the first, which plans."""
    took = []
    for _ in range(LOOKS + 1):
        started = time.monotonic()
        db.sql("SELECT * FROM outbox.sinks")
        took.append((time.monotonic() - started) * 1000)
    median = sorted(took[1:])[LOOKS // 2]
    progress(f"  {what}: {median:.0f} ms, at most {max(took[1:]):.0f}; the first {took[0]:.0f}")
    results.data[what] = took
    results.rows.append(Row(f"outbox.sinks, {what}", median, "ms", goals=[at_most(BOUND)], limit=f"at most {max(took[1:]):.0f} ms"))


def must_be_exact(db: Database, sink: str) -> None:
    said, true = db.sink("oldest_pending_age", sink)[0], db.value(TRUTH, sink)
    if abs(said - true) > timedelta(seconds=5):  # the exact value takes seconds to compute
        raise Failure(f"the oldest event of {sink} has waited for {true}, the view says {said}")


def load(db: Database, first: str, events: int) -> None:
    db.sql(f"INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload)"
           f" SELECT {first}, (n % 1000)::text, 'e', jsonb_build_object('n', n) FROM generate_series(1, {events}) AS n")


def measure(stage: Stage, results: Results, events: int) -> None:
    nginx = stage.rig.nginx()
    try:
        for sinks in (2, SINKS):
            with stage.database(f"views{sinks}") as db:
                stage.pause(db)
                for number in range(sinks):
                    db.webhook_sink(f"s{number}", nginx.url, aggregates=f"A{number}")
                db.webhook_sink("empty", nginx.url, aggregates="None")
                load(db, f"'A' || n % {sinks}", events)
                progress(f"{events:,} events wait for {sinks} sinks")
                look(results, db, f"{events:,} events of {sinks:,} sinks, no worker")
                must_be_exact(db, "s1")
                stage.switch(True)
                stage.wait_for_worker(db)
                look(results, db, f"{events:,} events of {sinks:,} sinks while they are delivered")
                if sinks == 2:
                    over_dead_rows(stage, results, db)
                stage.switch(False)
    finally:
        nginx.stop()


def over_dead_rows(stage: Stage, results: Results, db: Database) -> None:
    """A snapshot keeps vacuum from removing the rows that are delivered meanwhile."""
    with db.connect(autocommit=False) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        before = stage.delivered(db)
        time.sleep(30)
        look(results, db, f"and over {stage.delivered(db) - before:,} dead rows under an old snapshot")
