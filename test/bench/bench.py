"""make bench: drain, latency, enqueue and webhooks in one run on two cores; a table, and build/bench/results.json."""

import argparse
import json
import signal
import sys
import time
from dataclasses import asdict

import drain
import enqueue
import latency
import outage
import webhooks
from measure import describe_machine, describe_versions, use_two_cores
from outbox_rig import BUILD, Rig
from outbox_rig.crashes import crashes
from stage import SETTINGS, Failure, Results, Row, Stage

MEASURES = ("drain", "latency", "enqueue", "webhooks")
BY_HAND = ("outage",)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="test/bench/run")
    parser.add_argument("measures", nargs="*", metavar="|".join(MEASURES + BY_HAND))
    parser.add_argument("--events", type=int, default=500_000, help="to drain (default 500,000)")
    parser.add_argument("--rounds", type=int, default=3, help="of the drain (default 3); the median counts")
    parser.add_argument("--linger", default="0", help="linger.ms of both producers (default 0, the Kafka sink's own)")
    given = parser.parse_args()
    if unknown := set(given.measures) - set(MEASURES + BY_HAND):
        parser.error(f"no such measure: {', '.join(sorted(unknown))}")
    given.measures = given.measures or list(MEASURES)
    return given


def run(stage: Stage, results: Results, given: argparse.Namespace) -> None:
    steps = {
        "drain": lambda: drain.measure(stage, results, given.events, given.rounds),
        "latency": lambda: latency.measure(stage, results, [(1000, 20), (10, 10)]),
        "enqueue": lambda: enqueue.measure(stage, results),
        "outage": lambda: outage.measure(stage, results, 300_000),
        "webhooks": lambda: webhooks.measure(stage, results, 60_000),
    }
    for name in given.measures:
        print(f"==> {name}")
        steps[name]()


def table(rows: list[Row]) -> None:
    print()
    cells = [("", "outbox", "beside it", "ratio", "goal", "limit")]
    cells += [(row.what, row.figure, row.beside, "" if row.ratio is None else f"{row.ratio:.2f}",
               "" if row.goal is None else f"≥ {row.goal:g} {'met' if row.met() else 'MISSED'}", row.limit) for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def main() -> int:
    given = arguments()
    use_two_cores()
    results = Results()
    started = time.monotonic()
    machine = describe_machine()
    if machine["load_average_at_start"] > 0.5:
        print(f"note: the machine is busy (load average {machine['load_average_at_start']}): only ratios mean something")
    with Rig("bench") as rig:
        stage = Stage(rig, given.linger)
        with stage.database("versions") as db:
            server = db.value("SELECT current_setting('server_version')")
            libraries = db.value("SELECT libraries FROM outbox.library()")
        versions = describe_versions(server, libraries)
        print(f"{machine['cores_used']} of {machine['cores']} cores of {machine['cpu']}; PostgreSQL {server} "
              f"({', '.join(f'{name} {value}' for name, value in SETTINGS.items())}); {libraries}; Kafka {versions['kafka']}")
        run(stage, results, given)
        log = stage.pg.log
    if found := crashes(log):
        raise Failure("the server's log tells of a crash:\n" + "\n".join(found))

    table(results.rows)
    path = BUILD / "bench" / "results.json"
    path.write_text(json.dumps({
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "machine": machine, "versions": versions, "settings": SETTINGS,
        "linger_ms": given.linger, "rows": [asdict(row) | {"met": row.met()} for row in results.rows], "measures": results.data}, indent=2) + "\n")
    print(f"\n{time.monotonic() - started:.0f} s; all figures: {path}")
    return 0 if all(row.met() for row in results.rows) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("\ninterrupted: everything is stopped", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
