"""The plan of a cycle, derived only from the seed and the cycle's number."""

import random
from dataclasses import dataclass

from disk import HEAP, SYNC, WAL, WRITE

ERRORS = [(WAL, WRITE), (WAL, SYNC), (HEAP, WRITE), (HEAP, SYNC)]
FURTHEST = {(WAL, WRITE): 40, (WAL, SYNC): 40, (HEAP, WRITE): 40, (HEAP, SYNC): 6}  # the highest number of the call that fails


@dataclass
class Plan:
    cycle: int
    dice: random.Random
    asynchronous: float  # the share of transactions with synchronous_commit = off
    pause: float  # seconds after each transaction of a writer
    answers_after: float  # seconds for which the endpoint thinks: events pile up, and no claim flushes WAL
    seconds: float  # before the fault
    patient: bool  # a power cut waits, for at most a second, until something is unsynced
    walwriter_delay: str
    workers: int
    idle_timeout: str  # of the workers
    silent: bool  # the writers write nothing after the fault until all events have left
    error: tuple[str, str, int, str] | None  # which call fails, and how; None: a power cut


def draw(seed: int, cycle: int) -> Plan:
    dice = random.Random(f"{seed}/{cycle}")
    error = None
    if dice.random() < 0.3:
        kind, call = dice.choice(ERRORS)
        error = (kind, call, dice.randint(1, FURTHEST[kind, call]), dice.choice(["EIO", "ENOSPC"] if call == WRITE else ["EIO"]))
    return Plan(cycle, dice, dice.choice([1, 1, 0.9, 0.5]), dice.choice([0.002, 0.005, 0.05]),
                dice.choice([0, 0.02, 0.3]), dice.uniform(0.2, 1.2), dice.random() < 0.8,
                dice.choice(["10ms", "200ms", "10s"]), dice.choice([1, 1, 2, 3]), dice.choice(["100ms", "1min"]), dice.random() < 0.6, error)
