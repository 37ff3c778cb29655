"""make chaos CYCLES=n SEED=s: real servers and traffic with random kills, then a check of the history. The seed
determines what the writers do and which faults are injected when. Threads and processes run at their own speed, so a
replay repeats the schedule, not each interleaving."""

import argparse
import os
import random
import re
import sys
import time
import traceback
from pathlib import Path

import report
from checker import Finding, check
from cycle import Cycle
from history import History
from outbox_rig import Rig
from outbox_rig.crashes import crashes
from plan import draw
from sinks import SINKS
from world import World

ERRORS = {"fill_disk": "No space left on device", "recordings_fail": "the application keeps", "some_recordings_fail": "the application keeps",
          "long_recordings_fail": "the application keeps", "drop_day": "no partition of relation", "detach_day": "no partition of relation"}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cycles", type=int, default=int(os.environ.get("CYCLES") or 20))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6)))
    parser.add_argument("--first", type=int, default=int(os.environ.get("FIRST") or 1), help="the first cycle's number")
    parser.add_argument("--name", default="chaos", help="of the rig: several may run side by side under different names")
    return parser.parse_args()


class Run:
    def __init__(self, rig: Rig, seed: int):
        self.seed, self.started = seed, time.time()
        self.world = World(rig)
        self._histories: dict[int, History] = {}
        self._cycle_of: dict[str, int] = {}
        self._logs_read: dict[Path, int] = {}  # a promoted standby has a log of its own

    def cycle(self, number: int) -> bool:
        began = time.monotonic()
        cycle = Cycle(self.world, draw(self.seed, number))
        history = self._histories[number] = cycle.history
        cycle.run()
        touched = self.world.observe(self._histories, self._cycle_of, history)
        wrong = self._crashes({fault.name for fault in history.faults})
        lines = []
        for n in sorted(touched):
            self._share_faults(n, history)
            found = check(self._histories[n], SINKS)
            wrong += found
            if found:
                lines.append(report.findings(found, self._histories[n], self.started))
        print(f"cycle {number:3} {'FAILED' if wrong else 'ok'}  " + report.line(cycle, self.started, time.monotonic() - began))
        if wrong:
            print("\n".join(f"{f.kind.upper()}: {f.text}" for f in wrong if f.kind == "crash"))
            print("\n".join(lines))
            print("\nthe state of the server:", *self.world.state(), sep="\n")
        return not wrong

    def logs(self) -> list[Path]:
        """Of all servers that were the primary."""
        return sorted({*self._logs_read, self.world.pg.log})

    def _share_faults(self, n: int, now: History) -> None:
        """An event of an earlier cycle can arrive again after a fault of this cycle, so both cycles count this
        fault's bound."""
        earlier = self._histories[n]
        if earlier is not now:
            earlier.faults += [fault for fault in now.faults if fault not in earlier.faults]

    def _crashes(self, faults: set[str]) -> list[Finding]:
        """The harness kills with signal 9, and some faults are errors of the worker's transaction; every other crash and error is a finding."""
        meant = "|".join([r"terminated by signal 9\b", *(error for fault, error in ERRORS.items() if fault in faults)])
        found = []
        for log in self.logs():
            found += [line for line in crashes(log, self._logs_read.get(log, 0)) if not re.search(meant, line)]
            self._logs_read[log] = log.stat().st_size
        return [Finding("crash", line) for line in found]


def main() -> int:
    given = arguments()
    print(f"chaos: {given.cycles} cycles, seed {given.seed}")
    passed = 0
    with Rig(given.name) as rig:
        run = Run(rig, given.seed)
        for number in range(given.first, given.first + given.cycles):
            try:
                if not run.cycle(number):
                    break
            except Exception:
                print(f"cycle {number:3} FAILED  {traceback.format_exc()}")
                break
            passed += 1
        if passed < given.cycles:
            print(report.where([*run.logs(), *(broker.log for broker in run.world.kafka.brokers.values())]))
            print(report.replay(given.seed, given.first + passed))
        run.world.close()
    print(f"{passed} cycles passed, {int(passed < given.cycles)} failed; seed {given.seed}")
    return 0 if passed == given.cycles else 1


if __name__ == "__main__":
    sys.exit(main())
