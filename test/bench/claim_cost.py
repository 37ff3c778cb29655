"""What a claim costs with hundreds of open transactions, under a held snapshot, with millions of scheduled events and
after a restart, beside the same without: python test/bench/claim_cost.py [SCENARIO ...] [--delivered N] [--scheduled N]."""

import argparse
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from measure import Cpu, median, use_two_cores
from outbox_rig import Rig, wait_until
from outbox_rig.crashes import crashes
from outbox_rig.database import Database
from stage import Failure, Stage, progress

GOAL = 1.3  # of the cost, beside none of it
BULK, SINGLE = 50_000, 2000


@dataclass
class Cost:
    """Of the worker's main thread, in microseconds per event; and events per second from start to end."""
    bulk: float
    single: float
    rate: float


def insert(db: Database, events: int, more: str = "NULL") -> None:
    db.sql(f"""INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, available_at)
               SELECT 'Order', 'k' || n % 1000, 'order.created', jsonb_build_object('n', n), {more}
               FROM generate_series(1, {events}) AS n""")


def deliver(stage: Stage, db: Database, events: int, enqueue) -> tuple[float, float]:
    """Seconds until `events` are delivered and recorded, and the CPU of the worker's main thread for each."""
    worker, before = stage.wait_for_worker(db), stage.delivered(db)
    started, cpu = time.monotonic(), Cpu.now(stage.workers(db)[0], 0)
    enqueue()
    wait_until(lambda: stage.delivered(db) >= before + events, 120, lambda: f"{stage.delivered(db) - before} of {events} events", interval=0.005)
    return time.monotonic() - started, Cpu.now(worker, 0).since(cpu).worker_main / events * 1e6


def measure(stage: Stage, db: Database) -> Cost:
    def singly() -> None:
        with db.connect() as connection:
            for n in range(SINGLE):
                connection.execute("SELECT outbox.enqueue('Order', 'k' || %s, 'order.created', '{}')", [n % 1000], prepare=True)
    seconds, bulk = deliver(stage, db, BULK, lambda: insert(db, BULK))
    _, single = deliver(stage, db, SINGLE, singly)
    return Cost(bulk, single, BULK / seconds)


@contextmanager
def open_transactions(db: Database, number: int = 300):
    """They have enqueued, and do not commit while the body runs; then they do, and their events are delivered too."""
    with ExitStack() as stack:
        connections = [stack.enter_context(db.connect(autocommit=False)) for _ in range(number)]
        for connection in connections:
            connection.execute("SELECT outbox.enqueue('Order', 'open', 'order.created', '{}')")
        yield
        for connection in connections:
            connection.commit()
    wait_until(lambda: not db.value("SELECT EXISTS (SELECT FROM outbox.events_pending WHERE available_at IS NULL)"), 60, "the late ones")


@contextmanager
def held_snapshot(stage: Stage, db: Database, deliveries: int):
    """A snapshot older than `deliveries` deliveries: their rows and index entries stay."""
    with db.connect(autocommit=False) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM outbox.events")
        for _ in range(0, deliveries, 250_000):
            deliver(stage, db, 250_000, lambda: insert(db, 250_000))
        yield
    db.sql("VACUUM outbox.events_pending")


def first(stage: Stage, db: Database, after: str) -> None:
    seconds, _ = deliver(stage, db, 1, lambda: db.enqueue("Order", "first"))
    progress(f"  after {after} the first event is delivered within {seconds:.2f} s")


@contextmanager
def scheduled(stage: Stage, db: Database, events: int):
    insert(db, events, "now() + interval '1 day' + n * interval '1 ms'")
    first(stage, db, "the scheduled ones were seen")
    yield
    db.sql("TRUNCATE outbox.events_pending")


def restart(stage: Stage, db: Database) -> None:
    """A worker restart, and how long ordinary events then wait."""
    [old] = stage.workers(db)
    db.sql("SELECT pg_terminate_backend(%s)", old)
    wait_until(lambda: stage.workers(db) not in ([], [old]), 30, "a new worker")
    first(stage, db, "a restart")


def compare(stage: Stage, name: str, what: str, condition, rounds: int, over: list[str], restarts: bool = False) -> None:
    with stage.database(name) as db:
        stage.kafka_sink(db)
        measure(stage, db)  # the broker's compiler has seen it
        without, during = [], []
        for _ in range(rounds):
            without.append(measure(stage, db))
            with condition(db):
                during.append(measure(stage, db))
                if restarts:
                    restart(stage, db)
                    during.append(measure(stage, db))
        figures = []
        for cost in ("bulk", "single"):
            a, b = (median([getattr(each, cost) for each in side]) for side in (without, during))
            figures.append(f"{cost} {a:.1f} and {b:.1f} µs of the main thread per event, ratio {b / a:.2f}")
            if b / a > GOAL:
                over.append(f"{what}, {cost}: {b / a:.2f}")
        a, b = (median([each.rate for each in side]) for side in (without, during))
        progress(f"{what}: " + "; ".join(figures) + f"; rate {a:,.0f} and {b:,.0f}/s, ratio {b / a:.2f}")


def main() -> int:
    def both(db: Database):
        stack = ExitStack()
        stack.enter_context(open_transactions(db))
        stack.enter_context(held_snapshot(stage, db, given.delivered))
        return stack
    scenarios = {
        "open": ("300 open transactions", lambda db: open_transactions(db), 3, False),
        "snapshot": ("a snapshot held through many deliveries", lambda db: held_snapshot(stage, db, given.delivered), 2, True),
        "both": ("both of them", both, 1, False),
        "scheduled": ("millions of scheduled events", lambda db: scheduled(stage, db, given.scheduled), 1, True),
    }
    parser = argparse.ArgumentParser(prog="test/bench/claim_cost.py")
    parser.add_argument("scenarios", nargs="*", metavar="|".join(scenarios))
    parser.add_argument("--delivered", type=int, default=1_000_000, help="under the snapshot")
    parser.add_argument("--scheduled", type=int, default=3_000_000)
    given = parser.parse_args()
    use_two_cores()
    over: list[str] = []
    with Rig("claim-cost") as rig:
        stage = Stage(rig, "0", max_connections="400")
        for name in given.scenarios or scenarios:
            what, condition, rounds, restarts = scenarios[name]
            compare(stage, f"cost_{name}", what, condition, rounds, over, restarts)
        log = stage.pg.log
    if found := crashes(log):
        raise Failure("the server's log tells of a crash:\n" + "\n".join(found))
    print("claims cost the same" if not over else "DEARER " + "; ".join(over))
    return 1 if over else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        sys.exit(1)
