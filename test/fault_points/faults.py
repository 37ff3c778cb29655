#!/usr/bin/env python3
"""Breaks the server at every fault point in every way, and checks the books after each (README.md: every edge
broken). Each scenario runs once undisturbed, which shows the points that it comes to.

POINTS="claim. SinkState"  only points whose names contain one of these words
WAYS="kill wait"           only these ways
SCENARIOS="locked idle"    only in these scenarios
SEED=1                     the order, and what FOR_SECONDS samples
FOR_SECONDS=150            starts no case after this time, in an order drawn from SEED; without it all cases run"""

import os
import random
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

import psycopg
from books import Books, Topic, accepted
from outbox_rig import Rig, wait_until
from outbox_rig.crashes import CRASH
from outbox_rig.database import Database
from outbox_rig.paths import ROOT
from outbox_rig.postgres import alive, children
from outbox_rig.receiver import OK, SECRET
from points import WAYS, Faults, edges, named
from scenarios import PATIENCE_S, SCENARIOS, Case, Scenario

MAX_IN_FLIGHT = 40  # small, so that the bound on duplicates is tested
HIT_S = 4  # a point that the scenario has not come to by then is not reached
CASES_PER_SCENARIO = 6  # of a sample
EXPECTED_ERROR = re.compile(r"outbox fault point|refused by a fault test|canceling statement due to user request|terminating .* due to administrator command")
SETUP, ACT = "setup", "act"


@dataclass(frozen=True)
class Planned:
    scenario: Scenario
    phase: str  # in which the point is armed
    point: str
    way: str

    def __str__(self) -> str:
        return f"{self.point} / {self.way} ({self.scenario.name})"


class World:
    def __init__(self, rig: Rig):
        self.pg = rig.postgres(settings={"outbox.max_in_flight": str(MAX_IN_FLIGHT), "outbox.poll_interval": "1s", "outbox.shutdown_timeout": "3s"})
        self.faults = Faults(self.pg)
        self.kafka = rig.kafka(jit=False, killed=True)
        self.receiver = rig.receiver(secret=SECRET)
        self.topic = Topic(self.kafka)
        self.usual: set[str] = set()  # findings of the doctor without a fault
        self._family: set[int] = set()
        self._number = 0

    def run(self, scenario: Scenario, planned: Planned | None = None) -> tuple[str, dict[str, set[str]]]:
        """Runs the scenario with one fault or with none. Returns "" (as it should be), "not reached" or what is wrong, and the points that
        processes came to in each phase."""
        self._number += 1
        case = Case(Database(self.pg, f"faults{self._number}"), self.kafka, self.receiver)
        log_began = self.pg.log.stat().st_size
        self.faults.clear()
        seen: dict[str, set[str]] = {}
        errors: list[Exception] = []

        def act() -> None:
            try:
                for phase, step in ((SETUP, lambda: (case.create(), case.sinks())), (ACT, lambda: (scenario.act(case), case.drained()))):
                    if planned and planned.phase == phase:
                        self.faults.arm(planned.point, planned.way)
                    step()
                    if phase == SETUP and (not planned or planned.phase == ACT):
                        case.write_one("first")
                        case.drained()
                    seen[phase] = self.faults.forget_seen()
                self._finish(case, planned)
            except Exception as e:
                errors.append(e)

        try:
            self._beside(act, planned)
            if errors:
                return f"{type(errors[0]).__name__}: {errors[0]}\n{self._state(case)}", seen
            if planned and not self.faults.hit():
                return "not reached", seen
            return "\n".join(self._audit(case, scenario, planned, log_began)), seen
        finally:
            self._clean(case)

    def _beside(self, act, planned: Planned | None) -> None:
        """Runs it on a thread of its own; this one starts the server again, since only the thread that started it may."""
        thread = threading.Thread(target=act, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(0.05)
            if self.pg.running():
                if planned and planned.way == "postmaster":
                    self._family = set(children(self.pg.pid)) | self._family
            else:
                self._start_again()

    def _start_again(self) -> None:
        """The postmaster's children must have left by themselves."""
        wait_until(lambda: not any(alive(pid) for pid in self._family), 30, "the orphans to leave")
        self._family = set()
        deadline = time.monotonic() + 60
        while True:
            try:
                self.pg.start()
                return
            except RuntimeError:  # an orphan that was just forked still has the shared memory
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def _finish(self, case: Case, planned: Planned | None) -> None:
        """The fault was hit and is over; then the server delivers as usual, and the doctor has nothing to say."""
        if planned:
            try:
                wait_until(self.faults.hit, HIT_S, "the fault")
            except TimeoutError:
                self.faults.disarm()
                return
        case.receiver.mode = OK
        case.write(3)
        case.drained()
        case.until("SELECT count(*) = current_setting('outbox.workers')::int FROM outbox.workers WHERE database = current_database()", "the workers")
        if planned is None:
            self.usual |= {row[0] for row in case.db.complaints()}
            return
        self._change_worker(case)
        wait_until(lambda: not self._complaints(case), PATIENCE_S, lambda: f"the doctor to be content: {self._complaints(case)}", 0.2)

    def _change_worker(self, case: Case) -> None:
        """The fault may have spared the worker: the next one must find the database in order as well."""
        pids = "SELECT array_agg(pid) FROM outbox.workers WHERE database = current_database()"
        before = case.value(pids)
        case.sql("SELECT pg_terminate_backend(pid) FROM outbox.workers WHERE database = current_database()")
        wait_until(lambda: set(case.value(pids) or before).isdisjoint(before), PATIENCE_S, "the next worker", 0.05)
        case.write(3)
        case.drained()

    def _complaints(self, case: Case) -> list[tuple]:
        """That workers have ended unexpectedly is true, and the doctor says so for a minute."""
        return [row for row in case.sql("SELECT * FROM outbox.doctor() WHERE status <> 'ok'")
                if row[0] not in self.usual and not (row[0] == "worker" and "ended unexpectedly" in row[2])]

    def _audit(self, case: Case, scenario: Scenario, planned: Planned | None, log_began: int) -> list[str]:
        committed = {str(row[0]) for row in case.sql("SELECT id FROM ledger")}
        bound = scenario.duplicates + (0 if planned is None or planned.way == "wait" else MAX_IN_FLIGHT)
        books: Books = case.books
        wrong = []
        for sink, arrivals in (("kafka", self.topic.read()), ("crm", accepted(self.receiver.deliveries[:]))):
            wrong += books.faults(sink, [a for a in arrivals if a[1]["key"] != "third"], committed, bound)
        kills = 0
        with open(self.pg.log, errors="replace") as lines:
            lines.seek(log_began)
            for line in lines:
                if "terminated by signal 9" in line and planned and planned.way == "kill":
                    kills += 1
                elif CRASH.search(line) and not EXPECTED_ERROR.search(line):
                    wrong.append("in the log: " + line.rstrip())
        if kills > 1:
            wrong.append(f"{kills} processes ended by signal 9")
        return wrong

    def _state(self, case: Case) -> str:
        try:
            rows = case.db.sql("SELECT name, state, pending, blocked, in_flight, dead, last_error FROM outbox.sinks")
            rows += case.db.sql("SELECT * FROM outbox.workers")
            rows += case.db.sql("SELECT position, sink, aggregate_id, attempts, blocked_by, available_at - now(), last_error FROM outbox.events_pending LIMIT 5")
            return f"hit: {self.faults.hit()}\n" + "\n".join(f"  {row}" for row in rows)
        except psycopg.Error as e:
            return f"hit: {self.faults.hit()}; no state: {e}"

    def _clean(self, case: Case) -> None:
        """The next case finds nothing of this one."""
        self.faults.disarm()
        self.receiver.mode = OK
        self.receiver.start()
        self.receiver.release()
        if not self.pg.running():
            self._start_again()
        case.db.disconnect()
        self.pg.wait_ready()
        with self.pg.connect() as admin:
            admin.execute("ALTER SYSTEM RESET outbox.workers")
            admin.execute("ALTER SYSTEM RESET outbox.worker_idle_timeout")
            admin.execute("ALTER SYSTEM RESET outbox.enabled")
            admin.execute("SELECT pg_reload_conf()")
            for name in (case.db.name, case.db.name + "x"):
                admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self.receiver.clear()
        self.topic.read()


class Report:
    def __init__(self):
        self.began = time.monotonic()
        self.passed, self.failed, self.skipped = 0, [], []
        self.seen: set[str] = set()
        self.hit: set[str] = set()

    def add(self, planned: Planned | Scenario, wrong: str, seconds: float) -> None:
        point = planned.point if isinstance(planned, Planned) else None
        if wrong == "not reached":
            self.skipped.append(planned)
        elif wrong:
            self.failed.append(planned)
        else:
            self.passed += 1
        if point and wrong != "not reached":
            self.hit.add(point)
        label = planned if point else f"{planned.name}, undisturbed"
        print(f"{time.monotonic() - self.began:6.0f} s  {label}: {'FAILED' if wrong and wrong != 'not reached' else wrong or 'ok'} ({seconds:.1f} s)", flush=True)
        if wrong and wrong != "not reached":
            print("    " + wrong.replace("\n", "\n    "), flush=True)

    def end(self, whole: bool) -> None:
        for kind, names in (("points", named()), ("edges", edges())):
            print(f"{kind}: {len(names)}, of which {len(self.seen.intersection(names))} were come to, and {len(self.hit.intersection(names))} broken")
            if whole and (never := [name for name in names if name not in self.seen]):
                print(f"  never come to: {', '.join(never)}")
        for each in self.skipped:
            print(f"SKIPPED {each}: not reached")
        for each in self.failed:
            print(f"FAILED {each if isinstance(each, Planned) else each.name}")
        print(f"{self.passed} cases passed, {len(self.failed)} failed, {len(self.skipped)} skipped")


def release_is_clean() -> bool:
    """The release library, as it was built beside this one, contains nothing of the fault points."""
    library = ROOT / "outbox.so"
    symbols = subprocess.run(["nm", "-C", library], check=True, capture_output=True, text=True).stdout
    text = library.read_bytes()
    found = [name for name in ("outbox_fault", "outbox_signal_point", "outbox_state_changes", *named()) if name in symbols or b"\0" + name.encode() + b"\0" in text]
    print(f"release library {library}: {'contains ' + ', '.join(found) if found else f'none of {len(named())} fault points, no symbol of theirs'}")
    return not found


def undisturbed(world: World, scenario: Scenario, report: Report) -> dict[str, set[str]]:
    began = time.monotonic()
    wrong, seen = world.run(scenario)
    report.add(scenario, wrong, time.monotonic() - began)
    for points in seen.values():
        report.seen |= points
    return {} if wrong else seen  # a scenario that fails undisturbed shows nothing


def phase_of(seen: dict[str, set[str]], point: str) -> str | None:
    return next((phase for phase in (ACT, SETUP) if point in seen.get(phase, set())), None)


def one(world: World, planned: Planned, report: Report) -> None:
    began = time.monotonic()
    wrong, seen = world.run(planned.scenario, planned)
    for points in seen.values():
        report.seen |= points
    report.add(planned, wrong, time.monotonic() - began)


def chosen_scenarios() -> dict[str, Scenario]:
    return {name: SCENARIOS[name] for name in os.environ.get("SCENARIOS", "").split()} or SCENARIOS


def whole(world: World, points: list[str], ways: list[str], dice: random.Random, report: Report) -> None:
    """Every point in every way, each in a scenario that comes to it, one after its setup if there is one."""
    seen = {name: undisturbed(world, scenario, report) for name, scenario in chosen_scenarios().items()}
    plan = []
    for point in points:
        phases = {name: phase_of(seen[name], point) for name in seen}
        best = [name for name in phases if phases[name] == ACT] or [name for name in phases if phases[name]]
        plan += [Planned(SCENARIOS[name], phases[name], point, way) for way in ways for name in ([dice.choice(best)] if best else [])]
    dice.shuffle(plan)
    print(f"{len(plan)} cases", flush=True)
    for planned in plan:
        one(world, planned, report)


def sample(world: World, points: list[str], ways: list[str], dice: random.Random, report: Report, seconds: float) -> None:
    """Some points of scenarios in an order drawn from the seed."""
    until, scenarios = time.monotonic() + seconds, chosen_scenarios().values()
    for scenario in dice.sample(list(scenarios), len(scenarios)):
        if time.monotonic() > until:
            return
        seen = undisturbed(world, scenario, report)
        reached = [point for point in points if phase_of(seen, point)]
        for point in dice.sample(reached, min(CASES_PER_SCENARIO, len(reached))):
            if time.monotonic() > until:
                return
            one(world, Planned(scenario, phase_of(seen, point), point, dice.choice(ways)), report)


def main() -> int:
    seed = int(os.environ.get("SEED") or random.randrange(1 << 32))
    words = os.environ.get("POINTS", "").split(",") if "," in os.environ.get("POINTS", "") else os.environ.get("POINTS", "").split()
    points = [point for point in [*named(), *edges()] if not words or any(word in point for word in words)]
    ways = os.environ.get("WAYS", "").split() or list(WAYS)
    report = Report()
    print(f"SEED={seed}", flush=True)
    if not release_is_clean():
        return 1
    with Rig("faults") as rig:
        world = World(rig)
        dice = random.Random(seed)
        seconds = os.environ.get("FOR_SECONDS")
        try:
            if seconds:
                sample(world, points, ways, dice, report, float(seconds))
            else:
                whole(world, points, ways, dice, report)
        finally:  # also when it is interrupted
            world.topic.close()
            report.end(not seconds)
    return 1 if report.failed or not report.passed else 0


if __name__ == "__main__":
    sys.exit(main())
