"""A million keys are blocked, by failing events or by dead letters: what an event of another key costs, compared with
none, and the time from a worker's start to the first event."""

import time

from measure import Cpu, in_words, median, sizes, thread_seconds
from outbox_rig import wait_until
from outbox_rig.database import Database
from results import Failure, Results, Row, ratio_at_least, ratio_at_most
from stage import SECRET, Stage

EVENTS = 20_000  # of other keys, in each round
PIECE = 100_000
QUIET = 5  # seconds
# As a restore inserts them. The origin is that of an event that was enqueued before.
COLUMNS = "aggregate_type, aggregate_id, partition_key, event_type, payload, position, sink, origin, attempts, last_attempt_at, last_error"
FAILED = ("'Order', 'k' || n, 'k' || n, 'e', '{}', nextval('outbox.events_position'), 'main', (SELECT origin FROM outbox.events_pending LIMIT 1),"
          " 1, now(), 'HTTP 422'")
FAILING = f"INSERT INTO outbox.events ({COLUMNS}, available_at) SELECT {FAILED}, now() + interval '1 day'"
DEAD = f"INSERT INTO outbox.events ({COLUMNS}, status) SELECT {FAILED}, 'FAILED'"
NONE = "nothing"
SIDES = {NONE: "", "failing events": FAILING, "dead letters": DEAD}


def block(db: Database, keys: int, insert: str) -> None:
    for first in range(1, keys + 1, PIECE):
        db.sql(f"{insert} FROM generate_series({first}, {min(first + PIECE - 1, keys)}) AS n")


def deliver(stage: Stage, db: Database, worker: int, events: int) -> tuple[float, float]:
    """Events per second, from the insert to the last one that is recorded, and the main thread's CPU per event in microseconds."""
    before, cpu, started = stage.delivered(db), Cpu.now(worker, 0), time.monotonic()
    db.sql(f"""INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload)
               SELECT 'Other', (n % 1000)::text, 'e', '{{}}' FROM generate_series(1, {events}) AS n""")
    wait_until(lambda: stage.delivered(db) - before == events, 300, lambda: f"{stage.delivered(db) - before} of {events} events", interval=0.002)
    seconds = time.monotonic() - started
    return events / seconds, Cpu.now(worker, 0).since(cpu).worker_main / events * 1e6


def one(stage: Stage, url: str, name: str, keys: int, insert: str, rounds: int) -> tuple[float, float, float, float, float, str]:
    """The rate, the main thread's CPU per event in microseconds, its share of a core while nothing is to be sent, and
    the seconds from the start to the first event, of which so many are the main thread's CPU; and the sizes."""
    with stage.database(name) as db:
        db.webhook_sink("main", url, SECRET, concurrency="64", on_dead_letter="block", retry="1d", max_attempts="1000")
        stage.pause(db)
        db.enqueue("Other", "0")
        if insert:
            block(db, keys, insert)
        for statement in ("VACUUM ANALYZE outbox.events_pending, outbox.events_failed", "CHECKPOINT"):  # not during the rounds
            db.sql(statement)
        started = time.monotonic()
        stage.switch(True)
        worker = stage.wait_for_worker(db)
        wait_until(lambda: stage.delivered(db) == 1, 300, "the first event", interval=0.002)
        first, spent = time.monotonic() - started, thread_seconds(worker)
        wait_until(lambda: db.value("SELECT count(*) FROM outbox_internal.rescan_queue") == 0, 300, "the inserted rows to be looked at")
        rates, costs = map(median, zip(*[deliver(stage, db, worker, EVENTS) for _ in range(rounds + 1)][1:]))  # the first warms up
        before, since = Cpu.now(worker, 0), time.monotonic()
        time.sleep(QUIET)
        quiet = Cpu.now(worker, 0).since(before).worker_main / (time.monotonic() - since)
        left = db.value("SELECT count(*) FROM outbox.events WHERE status IN ('PENDING', 'FAILED')")
        if left != (keys if insert else 0):
            raise Failure(f"{left} events are left of {keys if insert else 0}")
        return rates, costs, quiet, first, spent, in_words(sizes(stage, db))


def measure(stage: Stage, results: Results, keys: int, rounds: int) -> None:
    nginx = stage.rig.nginx()
    found = {what: one(stage, nginx.url, f"blocked_{number}", keys, insert, rounds) for number, (what, insert) in enumerate(SIDES.items())}
    results.data |= found
    none_rate, none_cost, none_quiet, none_first, *_ = found.pop(NONE)
    for what, (rate, cost, quiet, first, spent, size) in found.items():
        results.rows.append(Row(f"webhooks of the other keys, {keys:,} blocked by {what}", rate, "events/s", none_rate, "none is blocked",
                                goals=[ratio_at_least(0.9)], limit=size))
        results.rows.append(Row(f"main thread per event of the other keys, {keys:,} blocked by {what}", cost, "µs", none_cost, "none is blocked",
                                goals=[ratio_at_most(1.3)], limit=f"idle {quiet * 100:.2f} % of a core, {none_quiet * 100:.2f} when none is blocked"))
        results.rows.append(Row(f"start to the first event, {keys:,} keys blocked by {what}", first, "s", none_first, "none is blocked",
                                limit=f"main thread {spent:.2f} s"))
    nginx.stop()
