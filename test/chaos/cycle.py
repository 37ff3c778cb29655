"""One cycle: a burst of writes with faults during it, recovery, and the drain."""

import time

from faults import FAULTS, NothingToHit, moments
from hands import Hands
from history import Fault, History
from plan import Plan, Step
from world import World
from writers import WRITERS, Few, Writer

HARMLESS = {"change_workers", "set_clock", "rename_sink", "swap_sinks", "replace_sink", "recordings_fail", "some_recordings_fail",
            "long_recordings_fail", "drop_day", "detach_day"}  # a fault that the events must not notice
AFTER_FAULTS_S = 0.3  # seconds for which the writers continue after the recovery


class Cycle:
    def __init__(self, world: World, plan: Plan):
        self.world, self.plan = world, plan
        self.history = History(plan.cycle)
        self.skipped: list[str] = []
        self.drained_in = 0.0
        self._under_way: dict[int, Fault] = {}

    def run(self) -> None:
        parties: list[Writer | Hands] = [Writer(self.world.db, self.plan, self.history, n, self.world.alone) for n in range(WRITERS)]
        if self.plan.hands:
            parties.append(Hands(self.world.db, self.plan, self.history))
        started = time.monotonic()
        for party in parties:
            party.start()
        try:
            self._break_things(self.plan.steps, started)
            rest = started + self.plan.seconds - time.monotonic()
            time.sleep(max(rest, AFTER_FAULTS_S if self.plan.steps else 0))
        finally:
            for party in parties:
                party.finish()
        if self.plan.last:
            self._last(self.plan.last)
        self.drained_in = self.world.drain()
        for begun, ended in self.world.pulse.stalls():
            self.history.faults.append(Fault("the machine stood still", begun, ended, self.world.bound()))

    def _break_things(self, steps: list[Step], started: float) -> None:
        for at, step, which in moments(steps):
            time.sleep(max(0, started + at - time.monotonic()))
            (self._end if which else self._begin)(step)

    def _last(self, step: Step) -> None:
        self._begin(step)
        if self.plan.after:
            few = Few(self.world.db, self.plan, self.history)
            few.start()
            few.finish()
        self._end(step)

    def _bound(self, step: Step) -> int:
        return 0 if step.fault in HARMLESS else self.world.bound()

    def _begin(self, step: Step) -> None:
        fault = Fault(step.fault, time.time(), float("inf"), self._bound(step))
        self.history.faults.append(fault)
        self._under_way[id(step)] = fault
        try:
            FAULTS[step.fault][0](self.world, self.plan)
        except NothingToHit as e:
            self.skipped.append(f"{step.fault}: {e}")
            self.history.faults.remove(fault)
            del self._under_way[id(step)]

    def _end(self, step: Step) -> None:
        fault = self._under_way.pop(id(step), None)
        if fault is None:
            return
        FAULTS[step.fault][1](self.world, self.plan)
        fault.ended = time.time()
        fault.bound = max(fault.bound, self._bound(step))
