"""Does a relay lose an event whose transaction draws its number first and commits last?

A sequence gives numbers when rows are inserted, not when transactions commit. A relay that remembers the highest number
it has seen passes the number of a transaction that is still open, and never comes back. Each trial makes that happen
without luck: it goes on when the relay has delivered a later event.

Each relay is a class with the methods of Relay, in a module of its own:

    DSN=postgresql:///test python late_commit.py relays.last_id relays.poller
"""

import argparse
import importlib
import os
import random
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Callable, Protocol

import psycopg


class Relay(Protocol):
    """A relay under test. The constructor gets a connection string, and makes the relay's tables."""

    def start(self) -> None: ...

    def enqueue(self, connection: psycopg.Connection, event: str) -> None:
        """Adds an event in the running transaction of this connection, as an application would."""

    def delivered(self) -> list[str]:
        """All events that were delivered so far, each as often as it was."""

    def stop(self) -> None: ...


@dataclass
class Outcome:
    lost: int = 0
    phantom: int = 0  # delivered, though the transaction rolled back
    twice: int = 0
    waits: bool = False  # no later event was delivered while the transaction was open

    def __str__(self) -> str:
        found = [f"{number} {name}" for name in ("lost", "phantom", "twice") if (number := getattr(self, name))]
        if self.waits:
            found.append("later events wait")
        return ", ".join(found) or "all delivered"


class Trial:
    """Counts what became of the events of one trial."""

    def __init__(self, relay: Relay, dsn: str, patience: float):
        self._relay, self._dsn, self._patience = relay, dsn, patience
        self._committed: list[str] = []
        self._rolled_back: list[str] = []
        self._number = 0
        self._waits = False
        self._lock = threading.Lock()

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(self._dsn)

    def enqueue(self, connection: psycopg.Connection, commits: bool = True) -> str:
        with self._lock:
            self._number += 1
            event = f"{threading.get_ident()}-{time.monotonic_ns()}-{self._number}"
            (self._committed if commits else self._rolled_back).append(event)
        self._relay.enqueue(connection, event)
        return event

    def commit_later_event(self) -> None:
        """Returns when the relay has delivered an event that was enqueued later than those of open transactions, or
        has not done so for the whole of the patience."""
        with self.connect() as connection:
            event = self.enqueue(connection)
        if not self._until(lambda: event in self._relay.delivered()):
            self._waits = True

    def outcome(self) -> Outcome:
        """Waits until all committed events are delivered, as long as the patience after the last delivery."""
        seen, since = -1, time.monotonic()
        while time.monotonic() - since < self._patience:
            delivered = self._relay.delivered()
            if set(self._committed) <= set(delivered):
                break
            if len(delivered) != seen:
                seen, since = len(delivered), time.monotonic()
            time.sleep(0.05)
        count = Counter(self._relay.delivered())
        return Outcome(sum(event not in count for event in self._committed), sum(event in count for event in self._rolled_back),
                       sum(count[event] > 1 for event in self._committed), self._waits)

    def _until(self, condition: Callable[[], bool]) -> bool:
        end = time.monotonic() + self._patience
        while not (done := condition()) and time.monotonic() < end:
            time.sleep(0.02)
        return done


# ---- the trials ----------------------------------------------------------------------------------------------------


def commits_last(trial: Trial) -> None:
    """One transaction enqueues first and commits when a later event has been delivered."""
    with trial.connect() as first:
        trial.enqueue(first)
        trial.commit_later_event()


def commits_last_behind_many(trial: Trial) -> None:
    """The same with 1,000 later events: more than a relay reads at once."""
    with trial.connect() as first:
        trial.enqueue(first)
        with trial.connect() as later:
            for _ in range(1000):
                trial.enqueue(later)
        trial.commit_later_event()


def rolls_back(trial: Trial) -> None:
    """The first transaction rolls back, and in a later one a savepoint does."""
    with trial.connect() as first:
        trial.enqueue(first, commits=False)
        with trial.connect() as later:
            trial.enqueue(later)
            later.execute("SAVEPOINT undone")
            trial.enqueue(later, commits=False)
            later.execute("ROLLBACK TO SAVEPOINT undone")
        trial.commit_later_event()
        first.rollback()
    trial.commit_later_event()


def is_prepared(trial: Trial) -> None:
    """The first transaction is prepared for a commit in two phases, and its session ends."""
    with trial.connect() as first:
        name = f"late-{time.monotonic_ns()}"
        trial.enqueue(first)
        first.execute(f"PREPARE TRANSACTION '{name}'")
    trial.commit_later_event()
    with trial.connect() as second:
        second.autocommit = True
        second.execute(f"COMMIT PREPARED '{name}'")


def many_writers(trial: Trial) -> None:
    """Eight writers with transactions of random length, one in ten of which rolls back."""
    def write(seed: int) -> None:
        draw = random.Random(seed)
        with trial.connect() as connection:
            for _ in range(100):
                commits = draw.random() > 0.1
                trial.enqueue(connection, commits)
                time.sleep(draw.random() * 0.03)
                connection.commit() if commits else connection.rollback()

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()


TRIALS = {"commits last": commits_last, "commits last, behind 1,000": commits_last_behind_many, "rolls back": rolls_back,
          "is prepared": is_prepared, "eight writers": many_writers}


def examine(make: Callable[[str], Relay], dsn: str, patience: float) -> dict[str, Outcome]:
    relay = make(dsn)
    relay.start()
    try:
        found = {}
        for name, run in TRIALS.items():
            trial = Trial(relay, dsn, patience)
            run(trial)
            found[name] = trial.outcome()
        return found
    finally:
        relay.stop()


def table(found: dict[str, dict[str, Outcome]]) -> str:
    rows = [["relay", *TRIALS], ["---"] * (len(TRIALS) + 1), *([name, *map(str, outcomes.values())] for name, outcomes in found.items())]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("relays", nargs="+", metavar="MODULE", help="has a class named Relay")
    parser.add_argument("--patience", type=float, default=10, help="seconds without a delivery after which an event is lost (default 10)")
    given = parser.parse_args()
    if not (dsn := os.environ.get("DSN")):
        parser.error("set DSN to the connection string of a database in which the relays may create tables")
    found = {}
    for module in given.relays:
        relay = importlib.import_module(module)
        name = (relay.__doc__ or module).partition(":")[0].strip()
        print(f"{name} ...", file=sys.stderr)
        found[name] = examine(relay.Relay, dsn, given.patience)
    print(table(found), end="")
    return any(outcome.lost or outcome.phantom for outcomes in found.values() for outcome in outcomes.values())


if __name__ == "__main__":
    sys.exit(main())
