"""What an event costs the worker's main thread with hundreds of open transactions, under an old snapshot, with
millions of scheduled events and after a restart, compared with a database without these conditions; alternating."""

import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass

from measure import Cpu, median
from outbox_rig import wait_until
from outbox_rig.database import Database
from results import Results, Row, ratio_at_most
from stage import Stage, progress

GOAL = 1.2
BULK, SINGLE = 50_000, 1000
PIECE = 250_000


@dataclass
class Cost:
    """CPU of the worker's main thread in microseconds per event; and events per second from start to end."""
    bulk: float
    single: float
    rate: float


def insert(db: Database, events: int, more: str = "NULL") -> None:
    db.sql(f"""INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, available_at)
               SELECT 'Order', 'k' || n % 1000, 'order.created', jsonb_build_object('n', n), {more}
               FROM generate_series(1, {events}) AS n""")


def deliver(stage: Stage, db: Database, events: int, enqueue) -> tuple[float, float]:
    """Seconds until `events` are delivered and recorded, and the CPU of the worker's main thread per event."""
    worker, before = stage.wait_for_worker(db), stage.delivered(db)
    started, cpu = time.monotonic(), Cpu.now(worker, 0)
    enqueue()
    wait_until(lambda: stage.delivered(db) >= before + events, 120, lambda: f"{stage.delivered(db) - before} of {events} events", interval=0.005)
    return time.monotonic() - started, Cpu.now(worker, 0).since(cpu).worker_main / events * 1e6


def cost(stage: Stage, db: Database) -> Cost:
    def singly() -> None:
        with db.connect() as connection:
            for n in range(SINGLE):
                connection.execute("SELECT outbox.enqueue('Order', 'k' || %s, 'order.created', '{}')", [n % 1000], prepare=True)
    seconds, bulk = deliver(stage, db, BULK, lambda: insert(db, BULK))
    _, single = deliver(stage, db, SINGLE, singly)
    return Cost(bulk, single, BULK / seconds)


class Pair:
    """A database with the condition and one without it; each has a worker of its own, and an old snapshot affects
    vacuum only in its own database."""

    def __init__(self, stage: Stage, stack: ExitStack, name: str):
        self.stage = stage
        self.clean, self.db = (stack.enter_context(stage.database(f"{side}_{name}")) for side in ("clean", "claims"))
        self.costs: dict[str, list[Cost]] = {"clean": [], "db": []}
        for side in self.costs:
            stage.kafka_sink(getattr(self, side))
            cost(stage, getattr(self, side))  # the broker's JIT compiler is warm

    def turn(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            self.clean.sql("VACUUM outbox.events_pending")
            for side in self.costs:
                self.costs[side].append(cost(self.stage, getattr(self, side)))

    def take(self) -> tuple[Cost, Cost]:
        """Medians without and with the condition, since the last call."""
        found = [Cost(*(median([getattr(each, name) for each in costs]) for name in ("bulk", "single", "rate"))) for costs in self.costs.values()]
        self.costs = {side: [] for side in self.costs}
        return found[0], found[1]

    def rows(self, results: Results, what: str) -> None:
        without, during = self.take()
        results.data[what] = {"without": asdict(without), "with": asdict(during)}
        for name in ("bulk", "single"):
            results.rows.append(Row(f"main thread per event, {what}, {name}", getattr(during, name), "µs", getattr(without, name), "without",
                                    goals=[ratio_at_most(GOAL)]))
        progress(f"{what}: {during.bulk:.1f} µs in bulk and {without.bulk:.1f} without, singly {during.single:.1f} and {without.single:.1f}")


@contextmanager
def left_open(db: Database, number: int = 300):
    """Transactions that have enqueued events and stay open while the body runs; they then commit, and their events
    are delivered too."""
    with ExitStack() as stack:
        connections = [stack.enter_context(db.connect(autocommit=False)) for _ in range(number)]
        for connection in connections:
            connection.execute("SELECT outbox.enqueue('Order', 'open', 'order.created', '{}')")
        yield
        for connection in connections:
            connection.commit()
    wait_until(lambda: not db.value("SELECT EXISTS (SELECT FROM outbox.events_pending WHERE available_at IS NULL)"), 60, "the late ones")


@contextmanager
def held_snapshot(db: Database):
    """A snapshot that keeps the rows and index entries of all events that are delivered under it."""
    with db.connect(autocommit=False) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM outbox.events")
        yield
    db.sql("VACUUM outbox.events_pending")


def deliver_many(stage: Stage, db: Database, events: int) -> None:
    for first in range(0, events, PIECE):
        piece = min(PIECE, events - first)
        deliver(stage, db, piece, lambda: insert(db, piece))


def first(stage: Stage, results: Results, db: Database, after: str) -> None:
    seconds, _ = deliver(stage, db, 1, lambda: db.enqueue("Order", "first"))
    results.rows.append(Row(f"first event after {after}", seconds, "s"))


def restart(stage: Stage, results: Results, pair: Pair) -> None:
    """After a worker restart: how long ordinary events wait, and what they cost."""
    [old] = stage.workers(pair.db)
    pair.db.sql("SELECT pg_terminate_backend(%s)", old)
    wait_until(lambda: stage.workers(pair.db) not in ([], [old]), 30, "a new worker")
    first(stage, results, pair.db, "a restart")
    pair.turn()


def open_transactions(stage: Stage, results: Results, rounds: int) -> None:
    with ExitStack() as stack:
        pair = Pair(stage, stack, "open")
        for _ in range(rounds):
            with left_open(pair.db):
                pair.turn()
        pair.rows(results, "300 open transactions")


def snapshot(stage: Stage, results: Results, events: int, rounds: int) -> None:
    """Cost against dead rows, up to `events` of them."""
    with ExitStack() as stack:
        pair = Pair(stage, stack, "snapshot")
        curve = results.data["curve"] = []
        with held_snapshot(pair.db):
            dead = stage.delivered(pair.db)
            for part in (0, 0.1, 0.3, 0.6, 1):
                deliver_many(stage, pair.db, int(events * part) - (stage.delivered(pair.db) - dead))
                at = stage.delivered(pair.db) - dead
                pair.turn(rounds)
                if part == 1:
                    pair.rows(results, f"{at:,} dead rows under a held snapshot")
                    without, during = results.data.pop(f"{at:,} dead rows under a held snapshot").values()
                else:
                    without, during = map(asdict, pair.take())
                curve.append({"dead": at, "without": without, "with": during})
            restart(stage, results, pair)
            pair.rows(results, "the same after a restart")


def both(stage: Stage, results: Results, events: int, rounds: int) -> None:
    with ExitStack() as stack:
        pair = Pair(stage, stack, "both")
        with left_open(pair.db), held_snapshot(pair.db):
            deliver_many(stage, pair.db, events)
            pair.turn(rounds)
            pair.rows(results, f"{events:,} dead rows and 300 open transactions")


def scheduled(stage: Stage, results: Results, events: int, rounds: int) -> None:
    with ExitStack() as stack:
        pair = Pair(stage, stack, "scheduled")
        insert(pair.db, events, "now() + interval '1 day' + n * interval '1 ms'")
        first(stage, results, pair.db, "the scheduled ones were seen")
        pair.turn(rounds)
        restart(stage, results, pair)
        pair.rows(results, f"{events:,} scheduled events")
