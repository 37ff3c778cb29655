"""Runs suites side by side and adds up their results.

  python -m outbox_rig.side_by_side [--within MINUTES] NAME...

Each NAME is a suite or a layer (suites.py). A suite mostly waits, so three run at a time on two processors, the
longest first, and in addition one of those that compile. JOBS sets that number; with JOBS=1, or a single suite, its
whole output is shown, otherwise only the progress. All output goes to build/logs/NAME.log. With --within, a suite
that is not part of `make test` starts only if it will probably end within that many minutes; the others are listed
at the end. The last line is `N passed, N failed`."""

import argparse
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from .paths import BUILD, LOGS
from .suites import LAYERS, SUITES, TEST, Result

HARD_LIMIT_MIN = 80  # far more than a quiet machine needs: a busy machine must not make a suite fail
LONGEST_MIN = 240  # for suites that are requested by name and are not part of `make test`
STARTED = time.monotonic()
COMPILER = re.compile(r"^(?:nice .*)?(?:g\+\+|c\+\+|clang\+\+) .*?(\S+)$")
FAILURE = re.compile(r"(FAILED|ERROR)\s+\[ *\d+%\]|^not ok |\.\.\. FAILED|^\[  FAILED  \]|^cycle +\d+ FAILED")
SHARE = re.compile(r"\[ *(\d+%)\]")


def minutes() -> float:
    return (time.monotonic() - STARTED) / 60


class Running:
    """A running suite: a process whose output is read from its log."""

    def __init__(self, name: str):
        self.name, self.log = name, LOGS / f"{name}.log"
        self._result = BUILD / "results" / f"{name}.json"
        self._result.unlink(missing_ok=True)
        self.state, self.result, self._stopped = "", Result(), False
        self.seconds = self.cpu = 0.0
        self._began = time.monotonic()
        with open(self.log, "wb") as out:
            self._child = subprocess.Popen([sys.executable, "-u", "-m", "outbox_rig.suites", name], stdin=subprocess.DEVNULL, stdout=out,
                                           stderr=out, start_new_session=True)
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
            self.result.failed.append(f"stopped after {minutes():.0f} minutes in all")
        return True

    def signal(self, number: signal.Signals) -> None:
        self._stopped = True
        try:
            os.killpg(self._child.pid, number)
        except ProcessLookupError:
            pass


class Runner:
    def __init__(self, names: list[str], within: float):
        """`within`: the limit in minutes for suites that are not part of `make test`; they start after those, in
        order."""
        must = sorted((name for name in names if name in TEST or not within), key=lambda name: -SUITES[name].minutes)
        self._waiting = must + [name for name in names if name not in must]
        self._must, self._within = set(must), within
        self._limit = HARD_LIMIT_MIN if within or set(names) <= set(TEST) else LONGEST_MIN
        self._jobs = min(len(names), int(os.environ.get("JOBS") or (os.cpu_count() or 1) + 1))
        self._running: list[Running] = []
        self.done: list[Running] = []
        self.not_begun: list[str] = []
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
                    self._stop()
                self._tell_states()
                time.sleep(0.2)
        finally:
            self._stop()

    def _next(self) -> str | None:
        """The first suite that may start. One that compiles runs in addition to the others, but never beside another
        that compiles."""
        compiling = [SUITES[suite.name].compiles for suite in self._running]
        for name in list(self._waiting):
            if name not in self._must and minutes() + SUITES[name].minutes > self._within:
                self._waiting.remove(name)
                self.not_begun.append(name)
            elif self._jobs == 1 and self._running:
                return None
            elif not any(compiling) if SUITES[name].compiles else compiling.count(False) < self._jobs:
                return name
        return None

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
            print(f"    {minutes():4.1f} min  " + "   ".join(f"{suite.name} {suite.state}".rstrip() for suite in self._running))

    def _end(self, suite: Running) -> None:
        self._running.remove(suite)
        self.done.append(suite)
        if self._jobs > 1:
            result = suite.result
            if result.failed:
                print("".join(f"    {line}\n" for line in suite.log.read_text(errors="replace").splitlines()[-80:]), end="")
            print(f"<== {suite.name}: {result.passed} passed, {len(result.failed)} failed, {result.skipped} skipped in {suite.seconds:.0f} s")

    def _stop(self) -> None:
        """The suites stop what they have started."""
        for suite in self._running:
            suite.signal(signal.SIGTERM)
        deadline = time.monotonic() + 60
        while self._running:
            for suite in list(self._running):
                if time.monotonic() > deadline:
                    suite.signal(signal.SIGKILL)
                if suite.ended():
                    self._end(suite)
            time.sleep(0.1)


def report(done: list[Running], not_begun: list[str]) -> int:
    print(f"\n{'suite':<14}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}{'cpu':>9}")
    for suite in done:
        result = suite.result
        print(f"{suite.name:<14}{result.passed:>8}{len(result.failed):>8}{result.skipped:>9}{suite.seconds:>9.1f}{suite.cpu:>9.1f}")
    for suite in done:
        for failure in suite.result.failed:
            print(f"FAILED {suite.name}: {failure}  (log: {suite.log})")
    if not_begun:
        print(f"not started, no time left: {' '.join(not_begun)}")
    passed = sum(suite.result.passed for suite in done)
    failed = sum(len(suite.result.failed) for suite in done)
    print(f"{minutes():.1f} minutes in all")
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--within", type=float, default=0)
    parser.add_argument("names", nargs="+")
    given = parser.parse_args()
    names = list(dict.fromkeys(name for each in given.names for name in LAYERS.get(each, [each])))
    if unknown := [name for name in names if name not in SUITES]:
        print(f"no suite is called {' or '.join(unknown)}; suites: {' '.join(SUITES)}; layers: {' '.join(LAYERS)}", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    LOGS.mkdir(parents=True, exist_ok=True)
    runner = Runner(names, given.within)
    runner.run()
    return report(runner.done, runner.not_begun)


if __name__ == "__main__":
    sys.exit(main())
