"""Nothing grows: how fast events are delivered while the outbox holds very many rows that are not theirs, beside a clean database, in turns;
with the sizes of the pending table and of its indexes, and the worker's memory. A backlog is measured by `backlog`, blocked keys by
`blocked-keys`."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from claims import deliver_many, held_snapshot
from measure import Cpu, in_words, median, sizes
from outbox_rig import wait_until
from outbox_rig.database import Database
from results import Failure, Results, Row, ratio_at_least
from routing import ENDPOINTS, MAKE
from stage import PARTITIONS, Stage, progress

EVENTS = 100_000
PIECE = 250_000
INSERT = """INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, headers)
            SELECT '{aggregate_type}', 'k' || n % 1000, 'order.created', jsonb_build_object('n', n), jsonb_build_object('tenant', 1 + n % {endpoints})
            FROM generate_series({first}, {last}) AS n"""


def insert(db: Database, events: int, aggregate_type: str = "Order", endpoints: int = 1) -> None:
    for first in range(1, events + 1, PIECE):
        db.sql(INSERT.format(aggregate_type=aggregate_type, endpoints=endpoints, first=first, last=min(first + PIECE - 1, events)))


@dataclass
class Side:
    """Events per second from their commit on, and the CPU of the worker's main thread in microseconds per event."""
    stage: Stage
    db: Database
    endpoints: int = 1

    def __post_init__(self) -> None:
        self.rates: list[float] = []
        self.costs: list[float] = []

    def turn(self) -> None:
        worker, before = self.stage.wait_for_worker(self.db), self.stage.delivered(self.db)
        cpu = Cpu.now(worker, 0)
        insert(self.db, EVENTS, endpoints=self.endpoints)
        started = time.monotonic()
        wait_until(lambda: self.stage.delivered(self.db) >= before + EVENTS, 300, lambda: f"{self.stage.delivered(self.db) - before} of {EVENTS}", 0.005)
        self.rates.append(EVENTS / (time.monotonic() - started))
        self.costs.append(Cpu.now(worker, 0).since(cpu).worker_main / EVENTS * 1e6)


def in_turns(stage: Stage, results: Results, what: str, clean: Side, full: Side, rounds: int) -> None:
    for number in range(rounds + 1):  # the first warms up
        for side in (clean, full) if number % 2 else (full, clean):
            side.turn()
    for side in (clean, full):
        side.rates, side.costs = side.rates[1:], side.costs[1:]
    at_end = {name: sizes(stage, side.db) for name, side in (("clean", clean), ("full", full))}
    ratio = median([one / other for one, other in zip(full.rates, clean.rates)])
    results.data[what] = {"rates": full.rates, "clean": clean.rates, "costs": full.costs, "clean_costs": clean.costs, "sizes": at_end}
    progress(f"{what}: {median(full.rates):,.0f} events/s, {median(clean.rates):,.0f} without; {at_end}")
    results.rows += [
        Row(f"events/s, {what}", median(full.rates), "events/s", median(clean.rates), "without", ratio, [ratio_at_least(0.9)],
            limit=f"{in_words(at_end['full'])}; without: {in_words(at_end['clean'])}"),
        Row("  main thread per event", median(full.costs), "µs", median(clean.costs), "without"),
    ]


@contextmanager
def pair(stage: Stage, name: str) -> Iterator[tuple[Side, Side]]:
    """Without and with what grows."""
    with ExitStack() as stack:
        sides = [Side(stage, stack.enter_context(stage.database(f"{name}_{which}"))) for which in ("clean", "full")]
        for side in sides:
            stage.kafka_sink(side.db, aggregates="Order")
        yield sides[0], sides[1]


def dead_rows(stage: Stage, results: Results, events: int, rounds: int) -> None:
    with pair(stage, "dead") as (clean, full):
        clean.turn()
        with held_snapshot(full.db):
            deliver_many(stage, full.db, events)
            in_turns(stage, results, f"{events:,} dead rows under an old snapshot", clean, full, rounds)


def paused_sink(stage: Stage, results: Results, events: int, rounds: int) -> None:
    stage.kafka.create_topic("outbox.event.Paused", PARTITIONS)
    with pair(stage, "paused") as (clean, full):
        full.db.kafka_sink("paused", stage.kafka, aggregates="Paused")
        full.db.sql("SELECT outbox.pause('paused')")
        insert(full.db, events, "Paused")
        full.db.sql("VACUUM ANALYZE outbox.events_pending")
        in_turns(stage, results, f"{events:,} rows of a paused sink", clean, full, rounds)
        if (left := full.db.pending()) != events:
            raise Failure(f"{left} events are left, of {events} that were to stay")


def many_sinks(stage: Stage, results: Results, rounds: int) -> None:
    """Endpoints with match, of which each gets an equal share of the events."""
    nginx = stage.rig.nginx()
    with ExitStack() as stack:
        sides = []
        for name, endpoints in (("clean", 1), ("full", ENDPOINTS)):
            db = stack.enter_context(stage.database(f"sinks_{name}"))
            db.sql(MAKE.format(endpoints=endpoints).replace("'https://hooks.example/customers/'", f"'{nginx.url}/'")
                   .replace("match %L)", "match %L, allow_http ''true'', allow_networks ''127.0.0.0/8'')"))
            sides.append(Side(stage, db, endpoints))
        in_turns(stage, results, f"{ENDPOINTS:,} sinks", *sides, rounds)
    nginx.stop()
