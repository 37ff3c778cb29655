"""The plan of a cycle, derived only from the seed and the cycle's number."""

import random
from dataclasses import dataclass, field

FAULTS = {  # faults by target, with their weights; a cycle hits each target at most once
    "server": {"kill_worker": 3, "terminate_worker": 2, "kill_postmaster": 2, "kill_server": 2, "stop_immediate": 2,
               "restart_fast": 1, "kill_server_unflushed": 2, "fill_disk": 2, "promote_standby": 1},
    "broker": {"kill_broker": 2, "pause_broker": 3, "cut_broker": 2},
    "endpoint": {"endpoint_refuses": 1, "endpoint_hangs": 1, "endpoint_fails": 1, "endpoint_restarts": 1, "cut_endpoint": 1},
    "clock": {"set_clock": 1},
    "settings": {"change_workers": 3, "alter_kafka": 1, "alter_webhook": 1},
    "routes": {"sinks_leave": 1, "sinks_leave_behind_a_lock": 2},
}
USERS = {  # what users do to the tables and sinks, beside the faults
    "names": {"rename_sink": 1, "swap_sinks": 2, "replace_sink": 2},
    "recordings": {"recordings_fail": 2, "some_recordings_fail": 2, "drop_day": 1, "detach_day": 1},
}
BY_USERS = 0.3  # how often each of them happens
HANGING = {"long_recordings_fail": 1, "silent_broker": 1, "silent_endpoint": 1}  # the other parts' events must move meanwhile
LASTS = {  # minimum and maximum in seconds; the other faults have no duration
    "kill_server_unflushed": (0.2, 0.6), "kill_broker": (0.1, 0.5), "pause_broker": (0.2, 1.2), "endpoint_refuses": (0.2, 0.8),
    "cut_broker": (0.3, 1.5), "cut_endpoint": (0.3, 1.5), "fill_disk": (0.3, 1.0), "promote_standby": (0.5, 1.0),
    "endpoint_hangs": (0.2, 1.0), "endpoint_fails": (0.2, 0.8), "sinks_leave": (0.1, 0.8), "sinks_leave_behind_a_lock": (0.1, 0.5),
    "replace_sink": (0.1, 0.5), "recordings_fail": (0.2, 1.0), "some_recordings_fail": (0.5, 1.5), "detach_day": (0.2, 1.0),
}
KINDS = {"plain": 40, "rolled_back": 12, "savepoints": 12, "exception": 8, "steps": 5, "bulk": 3, "late": 8, "prepared": 8}


@dataclass
class Step:
    at: float  # seconds after the start of the burst or, for faults after the writers, after their end
    fault: str
    lasts: float


@dataclass
class Plan:
    seed: int
    cycle: int
    seconds: float = 0  # the minimum time in seconds for which the writers write
    kinds: dict[str, int] = field(default_factory=lambda: dict(KINDS))
    asynchronous: float = 0  # the share of transactions with synchronous_commit = off
    hands: bool = True  # whether users lock, change and delete pending rows
    steps: list[Step] = field(default_factory=list)
    last: Step | None = None  # faults after the writers have ended, during the drain
    after: list[str] = field(default_factory=list)  # kinds of the transactions that are made while the last fault lasts
    backlog: int = 0  # the number of bulk transactions with which each writer ends
    drained: float = 0  # the drained share of the backlog at which the last fault hits

    def dice(self, who: str) -> random.Random:
        """A random generator for each party, so that their speeds do not influence each other's numbers."""
        return random.Random(f"{self.seed}/{self.cycle}/{who}")


def draw(seed: int, cycle: int) -> Plan:
    plan = Plan(seed, cycle)
    dice = plan.dice("plan")
    plan.seconds = dice.uniform(1.0, 1.8)
    plan.asynchronous = dice.choice([0, 0.3, 0.3])
    plan.hands = dice.random() < 0.7
    plan.kinds |= {"large": 1, "freeing": 5, "echoing": 4, "ahead": 5}
    kind = dice.choices(["calm", "mixed", "asynchronous", "backlog", "upgrade", "hanging"], [1, 7, 2, 2, 0.2, 1.5])[0]
    if kind == "mixed":
        for target in dice.sample(sorted(FAULTS), dice.choices([1, 2, 3], [3, 4, 2])[0]):
            plan.steps.append(_step(dice, FAULTS[target], plan.seconds))
    elif kind == "asynchronous":  # no other commit may flush what must not be published before it is flushed
        plan.asynchronous, plan.hands = 1, False
        plan.kinds |= {"prepared": 0}
        plan.steps.append(_of(dice, "kill_server_unflushed", plan.seconds))
        if dice.random() < 0.3:
            plan.steps.append(_step(dice, FAULTS[dice.choice(["broker", "endpoint"])], plan.seconds))
    elif kind == "backlog":  # no other commit may flush the recordings
        plan.asynchronous, plan.hands = 0, False
        plan.backlog, plan.drained = 5, dice.uniform(0.2, 0.6)
        plan.last = Step(0, "kill_server_draining", 0)
        if dice.random() < 0.4:
            plan.steps.append(_step(dice, FAULTS[dice.choice(["broker", "endpoint"])], plan.seconds))
    elif kind == "upgrade":  # pg_upgrade refuses prepared transactions
        plan.kinds |= {"prepared": 0}
        plan.steps.append(_of(dice, "upgrade_server", plan.seconds))
        if dice.random() < 0.5:
            plan.steps.append(_step(dice, FAULTS[dice.choice(["broker", "endpoint", "clock"])], plan.seconds))
    elif kind == "hanging":
        plan.last = _step(dice, HANGING, 0)
        # A silent broker gets fewer events than fit in flight, also after the other one has refused some; the other faults get more.
        plan.after = ["every"] + ["large"] * 4 + ["rolled_back"] * 4 + ["every"] if plan.last.fault == "silent_broker" else \
            ["plain"] * 4 + ["bulk"] * 6 + ["plain"] * 8
        if dice.random() < 0.4:
            plan.steps.append(_step(dice, FAULTS["server"], plan.seconds))
    if kind in ("calm", "mixed", "hanging"):
        plan.steps += [_step(dice, actions, plan.seconds) for actions in USERS.values() if dice.random() < BY_USERS]
    plan.steps.sort(key=lambda step: step.at)
    return plan


def _step(dice: random.Random, names: dict[str, int], seconds: float) -> Step:
    return _of(dice, dice.choices([*names], [*names.values()])[0], seconds)


def _of(dice: random.Random, name: str, seconds: float) -> Step:
    return Step(dice.uniform(0.1, 0.9) * seconds, name, dice.uniform(*LASTS.get(name, (0, 0))))
