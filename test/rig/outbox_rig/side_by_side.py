"""Runs suites side by side and adds up their results.

  python -m outbox_rig.side_by_side [--nightly] NAME...

Each NAME is a suite or a layer (suites.py). A suite mostly waits, so as many run at a time as there are processors,
the longest first after those of seconds, and in addition one of those that compile; none starts while the machine is loaded. JOBS sets that
number; with JOBS=1, or a single suite, its whole output is shown, otherwise only the progress. All output goes to
build/logs/NAME.log. A suite that is not part of `make test` needs room on the disk to start.

When all suites have ended, each failed test runs again by itself, three times in a row. One that passes three times
counts as passed and is listed as unstable, also in build/unstable.txt: it failed because of what ran beside it. A
crash, a broken promise and a suite that decides nothing by chance get no second run (suites.py), and neither do more
than MOST_AGAIN tests.

--nightly runs one suite after the other, with a fresh SEED and the tests that take ten minutes (NIGHTLY), counts unstable tests as failed, and keeps the end of the
report in build/nightly.txt. The last line is `N passed, N failed`."""

import argparse
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from .paths import BUILD, LOGS, ROOT
from .suites import HERE, LAYERS, RELEASES, SUITES, TEST, Result

LIMIT_MIN = 80  # for all suites of `make test`: far more than even a loaded machine needs
LEAST_SUITE_MIN = 30  # a suite is called hung after this time, or after six times its usual time if that is longer
MOST_AGAIN = 12
LOAD = 4  # per processor: above it no suite starts
ROOM_GB = 5  # a full disk fails every suite that runs: those of `make test` must not pay for the others
STARTED = time.monotonic()
COMPILER = re.compile(r"^(?:g\+\+|c\+\+|clang\+\+) .*?(\S+)$")
FAILURE = re.compile(r"(FAILED|ERROR)\s+\[ *\d+%\]|^not ok |\.\.\. FAILED|^\[  FAILED  \]|^cycle +\d+ FAILED")
SHARE = re.compile(r"\[ *(\d+%)\]")


def minutes() -> float:
    return (time.monotonic() - STARTED) / 60


def free_gb() -> float:
    return shutil.disk_usage(BUILD).free / 1e9


class Running:
    """A running suite: a process whose output is read from its log."""

    def __init__(self, name: str, tests: list[str] = []):
        """`tests`: those of a second run."""
        stem = f"{name}-again" if tests else name
        self.name, self.log = name, LOGS / f"{stem}.log"
        self._result = BUILD / "results" / f"{stem}.json"
        self._result.unlink(missing_ok=True)
        self.state, self.result, self._stopped = "", Result(), False
        self.seconds = self.cpu = self.load = 0.0
        self._began = time.monotonic()
        with open(self.log, "wb") as out:
            self._child = subprocess.Popen([sys.executable, "-u", "-m", "outbox_rig.suites", name, *tests], stdin=subprocess.DEVNULL,
                                           stdout=out, stderr=out, start_new_session=True)
        self._lines = open(self.log, errors="replace")

    def news(self) -> list[str]:
        """The lines since the last call."""
        lines = list(itertools.takewhile(bool, map(self._whole_line, itertools.repeat(None))))
        for line in lines:
            if match := SHARE.search(line):
                self.state = match[1]
            elif match := COMPILER.match(line):
                self.state = f"compiling {Path(match[1]).name}"
            elif line.startswith(("==>", "cycle ", "ok ", "test ")):
                self.state = " ".join(line.removeprefix("==> ").split())[:40]
        return lines

    def _whole_line(self, _) -> str:
        place = self._lines.tell()
        line = self._lines.readline()
        if line.endswith("\n"):
            return line
        self._lines.seek(place)
        return ""

    def ended(self) -> bool:
        pid, status, usage = os.wait4(self._child.pid, os.WNOHANG)
        if not pid:
            return False
        self._child.returncode = code = os.waitstatus_to_exitcode(status)
        self.seconds, self.cpu = time.monotonic() - self._began, usage.ru_utime + usage.ru_stime
        if code == 0:
            self.result = Result(**json.loads(self._result.read_text()))
        else:
            self.result.failed.append(f"ended with code {code}")
        if self._stopped:
            self.result.failed.append(f"stopped after {self.seconds / 60:.0f} minutes")
            self.result.again.clear()
        return True

    def hangs(self) -> bool:
        return (time.monotonic() - self._began) / 60 > max(LEAST_SUITE_MIN, 6 * SUITES[self.name].minutes)

    def signal(self, number: signal.Signals) -> None:
        self._stopped = True
        try:
            os.killpg(self._child.pid, number)
        except ProcessLookupError:
            pass


@dataclass
class Unstable:
    """A test that failed beside others and passed three times alone. `line`: the first of its error."""

    suite: Running
    test: str
    line: str


class Runner:
    def __init__(self, names: list[str], jobs: int, limit: float):
        """`jobs`: how many suites run at a time. `limit`: in minutes, for all of them."""
        self._waiting = sorted(names, key=lambda name: (SUITES[name].minutes >= 1, -SUITES[name].minutes))  # those of seconds first
        self._limit, self._jobs = limit, min(len(names), jobs)
        self._running: list[Running] = []
        self.done: list[Running] = []
        self.not_begun: dict[str, str] = {}  # the reasons
        self.unstable: list[Unstable] = []
        self._last_state = time.monotonic()

    def run(self) -> None:
        try:
            while self._waiting or self._running:
                while name := self._next():
                    self._begin(name)
                for suite in list(self._running):
                    over = suite.ended()
                    self._tell(suite, suite.news())
                    if over:
                        self._end(suite)
                if minutes() >= self._limit:
                    self.not_begun |= dict.fromkeys(self._waiting, "no time left")
                    self._waiting = []
                    self._stop(self._running)
                self._stop([suite for suite in self._running if suite.hangs()])
                self._tell_states()
                time.sleep(0.2)
        finally:
            self._stop(self._running)

    def _next(self) -> str | None:
        """The first suite that may start. One that compiles runs in addition to the others, but never beside another
        that compiles."""
        if self._running and (self._jobs == 1 or os.getloadavg()[0] > LOAD * (os.cpu_count() or 1)):
            return None
        compiling = [SUITES[suite.name].compiles for suite in self._running]
        for name in list(self._waiting):
            if name not in TEST and free_gb() < ROOM_GB:
                self._waiting.remove(name)
                self.not_begun[name] = f"less than {ROOM_GB} GB free on the disk"
            elif not any(compiling) if SUITES[name].compiles else compiling.count(False) < self._jobs:
                return name
        return None

    def try_again(self) -> None:
        """Runs each failed test that a second run may excuse, alone."""
        doubtful = [suite for suite in self.done if suite.result.again and SUITES[suite.name].again]
        if sum(len(suite.result.again) for suite in doubtful) > MOST_AGAIN or minutes() > self._limit - 10:
            return
        for suite in doubtful:
            print(f"==> {suite.name}: what failed, alone and three times in a row")
            second = Running(suite.name, list(suite.result.again))
            self._running.append(second)
            while second in self._running:
                over = second.ended()
                self._tell(second, second.news())
                if over:
                    self._running.remove(second)
                elif second.hangs() or minutes() >= self._limit:
                    second.signal(signal.SIGKILL)
                time.sleep(0.2)
            wrong = second.result.failed
            if second.result.passed + len(wrong) == len(suite.result.again):  # else it ended before it had run all of them
                self.unstable += [Unstable(suite, test, line) for test, line in suite.result.again.items() if test not in wrong]

    def _begin(self, name: str) -> None:
        self._waiting.remove(name)
        print(f"==> {name}: {SUITES[name].title}")
        self._running.append(Running(name))

    def _tell(self, suite: Running, lines: list[str]) -> None:
        for line in lines:
            if self._jobs == 1:
                line = COMPILER.sub(r"compiling \1", line)
                print(f"    {line}", end="")
            elif FAILURE.search(line):
                print(f"    {suite.name}: {line}", end="")

    def _tell_states(self) -> None:
        if self._jobs > 1 and self._running and time.monotonic() - self._last_state >= 30:
            self._last_state = time.monotonic()
            print(f"    {minutes():4.1f} min  {free_gb():.0f} GB free  " + "   ".join(f"{suite.name} {suite.state}".rstrip() for suite in self._running))

    def _end(self, suite: Running) -> None:
        self._running.remove(suite)
        self.done.append(suite)
        suite.load = os.getloadavg()[0]
        if self._jobs > 1:
            result = suite.result
            if result.failed:
                print("".join(f"    {line}\n" for line in suite.log.read_text(errors="replace").splitlines()[-80:]), end="")
            print(f"<== {suite.name}: {result.passed} passed, {len(result.failed)} failed, {result.skipped} skipped in {suite.seconds:.0f} s")

    def _stop(self, suites: list[Running]) -> None:
        """The suites stop what they have started."""
        suites = list(suites)
        for suite in suites:
            suite.signal(signal.SIGTERM)
        deadline = time.monotonic() + 60
        while suites := [suite for suite in suites if suite in self._running]:
            for suite in suites:
                if time.monotonic() > deadline:
                    suite.signal(signal.SIGKILL)
                if suite.ended():
                    self._end(suite)
            time.sleep(0.1)


def keep_unstable(unstable: list[Unstable]) -> None:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    with open(BUILD / "unstable.txt", "a") as out:
        for each in unstable:
            print(f"{datetime.now(UTC):%Y-%m-%d %H:%M}", commit, f"load {each.suite.load:.0f}", each.suite.name, each.test, each.line, sep="\t", file=out)


def report(runner: Runner, nightly: bool) -> tuple[str, int]:
    """The report, and the exit code."""
    lines = [f"{'suite':<14}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}{'cpu':>9}"]
    excused = set() if nightly else {(each.suite.name, each.test) for each in runner.unstable}
    passed, failed = 0, []
    for suite in runner.done:
        result = suite.result
        wrong = [test for test in result.failed if (suite.name, test) not in excused]
        passed += result.passed + len(result.failed) - len(wrong)
        failed += [f"FAILED {suite.name}: {test}  (log: {suite.log})" for test in wrong]
        lines.append(f"{suite.name:<14}{result.passed:>8}{len(result.failed):>8}{result.skipped:>9}{suite.seconds:>9.1f}{suite.cpu:>9.1f}")
    failed += [f"FAILED {name}: not started, {reason}" for name, reason in runner.not_begun.items()]
    lines += failed
    lines += [f"UNSTABLE {each.suite.name}: {each.test}  (failed beside others, passed three times alone: {each.line}; log: {each.suite.log})" for each in runner.unstable]
    if runner.unstable:
        lines.append(f"{len(runner.unstable)} unstable: {BUILD / 'unstable.txt'}")
    lines += [f"{minutes():.1f} minutes in all", f"{passed} passed, {len(failed)} failed"]
    return "\n".join(lines), 0 if passed and not failed else 1


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nightly", action="store_true")
    parser.add_argument("names", nargs="+")
    given = parser.parse_args()
    names = list(dict.fromkeys(name for each in given.names for name in LAYERS.get(each, [each])))
    if unknown := [name for name in names if name not in SUITES]:
        print(f"no suite is called {' or '.join(unknown)}; suites: {' '.join(SUITES)}; layers: {' '.join(LAYERS)}", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    LOGS.mkdir(parents=True, exist_ok=True)
    quick = set(given.names) <= {"check", "test", "turn"}
    if quick:
        os.environ["QUICK"] = "1"
    if given.nightly:
        os.environ["NIGHTLY"] = "1"
        print(f"SEED={os.environ.setdefault('SEED', str(random.randrange(1 << 31)))}")
    jobs = 1 if given.nightly else int(os.environ.get("JOBS") or os.cpu_count() or 1)
    if "all" in given.names and (missing := sorted(RELEASES.keys() - set(HERE))):
        print(f"left out: PostgreSQL {', '.join(missing)}. `test/run {' '.join(f'pg{major}' for major in missing)}` makes the Debian releases that have them, and later runs use these")
    runner = Runner(names, jobs, LIMIT_MIN if quick else float("inf"))
    runner.run()
    runner.try_again()
    keep_unstable(runner.unstable)
    text, code = report(runner, given.nightly)
    if given.nightly:
        (BUILD / "nightly.txt").write_text(text + "\n")
    print("\n" + text)
    return code


if __name__ == "__main__":
    sys.exit(main())
