"""make bench: all measures by name, in one run on two cores; a table, and build/bench/results.json."""

import argparse
import inspect
import json
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field

import backlog
import blocked_keys
import bulk
import claims
import console
import distance
import drain
import enqueue
import failing_keys
import grows
import idle
import latency
import manual
import memory
import outage
import peer_debezium
import peer_dispatcher
import peer_ulak
import routing
import slow_endpoint
import soak
import two_workers
import views
import wal
import webhooks
from measure import describe_machine, describe_versions, use_two_cores
from outbox_rig import BUILD, Rig
from outbox_rig.crashes import crashes
from results import Failure, Results, table
from stage import SETTINGS, Stage

FILE = BUILD / "bench" / "results.json"
SIZES = {"events": int, "rounds": int, "keys": int, "databases": int, "seconds": float}


@dataclass
class Measure:
    """`short` are its sizes in `make bench`, which takes ten minutes; `full` are the differing sizes with --full."""
    run: Callable[..., None]
    short: dict = field(default_factory=dict)
    full: dict = field(default_factory=dict)


MEASURES = {
    "drain": Measure(drain.fixed, {"events": 500_000, "rounds": 3}, {"events": 2_000_000}),
    "drain-mixed": Measure(drain.mixed, {"events": 200_000, "rounds": 1}, {"events": 500_000, "rounds": 3}),
    "latency": Measure(latency.measure, {"plan": [(1000, 16), (10, 10)]}, {"plan": [(1000, 60), (10, 60)]}),
    "backlog": Measure(backlog.measure, {"events": 1_000_000, "rounds": 5}, {"events": 10_000_000, "rounds": 9}),
    "two-workers": Measure(two_workers.measure, {"events": 300_000, "rounds": 2}, {"events": 1_000_000, "rounds": 3}),
    "enqueue": Measure(enqueue.measure, {"seconds": 3, "rounds": 3}, {"seconds": 6, "rounds": 5}),
    "bulk": Measure(bulk.measure, {"events": 100_000, "rounds": 3}, {"events": 1_000_000}),
    "routing": Measure(routing.measure, {"seconds": 3, "events": 100_000, "rounds": 3}, {"seconds": 6, "rounds": 5}),
    "wal": Measure(wal.measure, {"events": 50_000}, {"events": 500_000}),
    "webhooks": Measure(webhooks.measure, {"events": 60_000}, {"events": 300_000}),
    "slow-endpoint": Measure(slow_endpoint.measure, {"events": 200, "rounds": 2}, {"events": 500, "rounds": 5}),
    "claims": Measure(claims.snapshot, {"events": 300_000, "rounds": 2}, {"events": 5_000_000, "rounds": 3}),
    "manual": Measure(manual.measure, {"events": 20_000, "rounds": 3}, {"events": 100_000, "rounds": 5}),
    "idle": Measure(idle.worker),
    "idle-exit": Measure(idle.from_rest, {"rounds": 7}, {"rounds": 25}),
    "idle-databases": Measure(idle.databases, {"databases": 100}, {"databases": 1000}),
}
PEERS = {
    "peers-drain": Measure(peer_debezium.drain, {"events": 500_000, "rounds": 3, "warm_ups": 2}, {"events": 2_000_000, "warm_ups": 4}),
    "peers-latency": Measure(peer_debezium.latency, {"plan": [(1000, 12), (10, 10)], "defaults": [(1000, 6)]},
                             {"plan": [(1000, 60), (10, 60)], "defaults": [(1000, 30)]}),
    "peers-dispatcher": Measure(peer_dispatcher.measure, {"events": 60_000, "ours": 500_000}),
    "peers-webhooks": Measure(peer_ulak.measure, {"events": 10_000, "ours": 60_000, "rounds": 2}),
}
BY_NAME = {  # run separately: each takes minutes, or shows what the others do not need
    "blocked-keys": Measure(blocked_keys.measure, {"keys": 1_000_000, "rounds": 5}),
    "claims-open": Measure(claims.open_transactions, {"rounds": 3}),
    "claims-both": Measure(claims.both, {"events": 1_000_000, "rounds": 1}),
    "claims-scheduled": Measure(claims.scheduled, {"events": 3_000_000, "rounds": 1}),
    "console": Measure(console.measure, {"events": 1_000_000, "rounds": 5}, {"events": 10_000_000, "rounds": 9}),
    "distance": Measure(distance.measure, {"plan": [(2, 12), (2, 100)], "seconds": 16, "events": 200_000}, {"seconds": 60, "events": 1_000_000}),
    "webhooks-distance": Measure(webhooks.distance, {"round_trip_ms": 2, "events": 60_000, "seconds": 10}, {"events": 300_000, "seconds": 60}),
    "failing-keys": Measure(failing_keys.measure, {"events": 40_000, "rounds": 5}),
    "grows-dead-rows": Measure(grows.dead_rows, {"events": 1_000_000, "rounds": 5}, {"events": 3_600_000, "rounds": 9}),
    "grows-paused": Measure(grows.paused_sink, {"events": 1_000_000, "rounds": 5}, {"rounds": 9}),
    "grows-sinks": Measure(grows.many_sinks, {"rounds": 3}, {"rounds": 5}),
    "memory-backlog": Measure(memory.backlog, {"events": 10_000_000}),
    "memory-blocked": Measure(memory.blocked, {"keys": 100_000}),
    "memory-depth": Measure(memory.depth, {"events": 100_000}),
    "memory-hung": Measure(memory.hung),
    "memory-sinks": Measure(memory.sinks),
    "soak": Measure(soak.measure, {"seconds": 1800}),
    "outage": Measure(outage.measure, {"events": 300_000}),
    "views": Measure(views.measure, {"events": 1_000_000}, {"events": 10_000_000}),
}
ALL = MEASURES | PEERS | BY_NAME


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run", epilog="By name only: " + ", ".join(BY_NAME))
    parser.add_argument("measures", nargs="*", metavar="NAME", help="default: " + ", ".join(MEASURES))
    parser.add_argument("--full", action="store_true", help="the sizes of the goals, for as long as it takes")
    parser.add_argument("--peers", action="store_true", help="the rivals too: " + ", ".join(PEERS))
    parser.add_argument("--add", action="store_true", help="keep what the last run has found of other measures")
    parser.add_argument("--publish", action="store_true", help="put table and plots into docs/")
    parser.add_argument("--linger", default="0", help="linger.ms of all producers (default 0, the Kafka sink's own)")
    for size, kind in SIZES.items():
        parser.add_argument(f"--{size}", type=kind, help="in place of a measure's own")
    given = parser.parse_args()
    if unknown := set(given.measures) - set(ALL):
        parser.error(f"no such measure: {', '.join(sorted(unknown))}")
    given.measures = given.measures or [*MEASURES, *(PEERS if given.peers else ())]
    for size in SIZES:
        if getattr(given, size) is not None and not any(size in inspect.signature(ALL[name].run).parameters for name in given.measures):
            parser.error(f"none of these measures has a number of {size}")
    return given


def sizes(name: str, given: argparse.Namespace) -> dict:
    measure = ALL[name]
    own = {size: getattr(given, size) for size in SIZES
           if getattr(given, size) is not None and size in inspect.signature(measure.run).parameters}
    return measure.short | (measure.full if given.full else {}) | own


@contextmanager
def clean_log(stage: Stage):
    """Fails if a process of the server crashed, or a worker logged an unexpected error."""
    size = stage.pg.log.stat().st_size
    yield
    if found := crashes(stage.pg.log, size):
        raise Failure("the server's log tells of a crash:\n" + "\n".join(found))


def run(stage: Stage, given: argparse.Namespace, about: dict) -> dict[str, Results]:
    """Runs the measures one after the other, even if one fails; each result is saved as soon as it is known."""
    found: dict[str, Results] = {}
    measures = json.loads(FILE.read_text())["measures"] if given.add and FILE.exists() else {}
    for name in given.measures:
        print(f"==> {name}")
        results = found[name] = Results(dict(found))
        try:
            with clean_log(stage):
                ALL[name].run(stage, results, **sizes(name, given))
        except Exception as failure:
            results.failed = f"{type(failure).__name__}: {failure}"
            if not isinstance(failure, (Failure, TimeoutError)):
                traceback.print_exc()
            print(f"FAILED: {name}: {results.failed}", file=sys.stderr)
        measures[name] = results.json() | {"sizes": sizes(name, given), "about": about}
        FILE.write_text(json.dumps({"measures": {name: measures[name] for name in ALL if name in measures}}, indent=1) + "\n")
    return found


def main() -> int:
    given = arguments()
    use_two_cores()
    started = time.monotonic()
    machine = describe_machine()
    if machine["load_average_at_start"] > 0.5:
        print(f"note: the machine is busy (load average {machine['load_average_at_start']}): only ratios mean something")
    with Rig("bench") as rig:
        stage = Stage(rig, given.linger)
        versions = describe_versions(stage)
        print(f"{machine['cores_used']} of {machine['cores']} cores of {machine['cpu']}; PostgreSQL {versions['postgresql']} "
              f"({', '.join(f'{name} {value}' for name, value in SETTINGS.items())}); {versions['libraries']}; Kafka {versions['kafka']}")
        about = {"machine": machine, "versions": versions, "settings": SETTINGS, "linger_ms": given.linger, "full": given.full}
        found = run(stage, given, about)

    print("\n" + table([row for results in found.values() for row in results.rows]))
    print(f"\n{time.monotonic() - started:.0f} s; all figures: {FILE}")
    if given.publish:
        from publish import publish  # it needs matplotlib, which --help does not

        publish(FILE)
    for name, results in found.items():
        if results.failed:
            print(f"FAILED: {name}: {results.failed}", file=sys.stderr)
    return 1 if any(results.failed or any(row.met() is False for row in results.rows) for results in found.values()) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\ninterrupted: everything is stopped", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
