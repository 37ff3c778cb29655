"""The results: rows of the table with their goals, and all figures behind them."""

import math
import time
from dataclasses import asdict, dataclass, field
from typing import Any


class Failure(Exception):
    """The events that arrived are not those that were enqueued."""


@dataclass(frozen=True)
class Goal:
    """A goal for a row's figure, in its unit, or for its ratio."""
    of: str
    bound: float
    at_most: bool

    def met(self, row: "Row") -> bool:
        value = getattr(row, self.of)
        return value is not None and (value <= self.bound if self.at_most else value >= self.bound)

    def text(self, unit: str) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.bound:,g}{'×' if self.of == 'ratio' else ' ' + unit}"


def at_least(figure: float) -> Goal:
    return Goal("figure", figure, False)


def at_most(figure: float) -> Goal:
    return Goal("figure", figure, True)


def ratio_at_least(ratio: float) -> Goal:
    return Goal("ratio", ratio, False)


def ratio_at_most(ratio: float) -> Goal:
    return Goal("ratio", ratio, True)


def number(value: float) -> str:
    """Three significant digits."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:,.{max(0, min(3, 2 - math.floor(math.log10(abs(value)))))}f}"


@dataclass
class Row:
    """A line of the table. The ratio is that of the two figures, unless it is given (the median of ratios, for
    example)."""
    what: str
    figure: float
    unit: str
    beside: float | None = None
    beside_what: str = ""
    ratio: float | None = None
    goals: list[Goal] = field(default_factory=list)
    either: bool = False  # one of the goals must be met
    limit: str = ""  # what limited it: the disk, or whose CPU

    def __post_init__(self) -> None:
        if self.ratio is None and self.beside:
            self.ratio = self.figure / self.beside
        self.goals = [goal if isinstance(goal, Goal) else Goal(**goal) for goal in self.goals]

    def met(self) -> bool | None:
        """None if there is no goal."""
        if not self.goals:
            return None
        return (any if self.either else all)(goal.met(self) for goal in self.goals)

    def cells(self) -> list[str]:
        goal = (" or " if self.either else ", ").join(goal.text(self.unit) for goal in self.goals)
        return [self.what, f"{number(self.figure)} {self.unit}", "" if self.beside is None else f"{number(self.beside)} {self.beside_what}",
                "" if self.ratio is None else f"{self.ratio:.2f}", goal, {None: "", True: "met", False: "MISSED"}[self.met()], self.limit]


HEADINGS = ["measure", "outbox", "beside it", "ratio", "goal", "", "limit"]


class Results:
    """The results of one measure; `others` are the earlier ones of the same run, by name."""

    def __init__(self, others: dict[str, "Results"]):
        self.others = others
        self.rows: list[Row] = []
        self.data: dict[str, Any] = {}  # for closer inspection
        self.failed = ""
        self.at = time.time()

    def json(self) -> dict:
        return {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.at)), "seconds": round(time.time() - self.at, 1), "failed": self.failed,
                "rows": [asdict(row) | {"met": row.met()} for row in self.rows], "data": self.data}


def table(rows: list[Row]) -> str:
    cells = [HEADINGS] + [row.cells() for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells)
