"""The benchmark of a kind that is an extension: a backlog's way from the table to the peer, beside a program that sends the same with
the client library alone, in turns in one run. sinks/KIND/bench.py says how, and `make -C sinks/KIND bench` runs it.

Only the ratio counts: the peer, the load and everything else share the machine."""

import argparse
import os
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from outbox_rig import Rig, wait_until
from outbox_rig.database import Database
from outbox_rig.paths import BUILD


class BesideLibrary:
    kind = library = ""
    payload, window = 300, 2000  # bytes of an event; how many may be unacknowledged
    events = 100_000

    def start(self, rig: Rig) -> Any:
        """Starts the peer."""
        raise NotImplementedError

    def options(self) -> str:
        """Of the sink's server, as CREATE SERVER has them."""
        raise NotImplementedError

    def mapping(self) -> str:
        """Of the user mapping for PUBLIC."""
        return ""

    def empty(self) -> None:
        """Lets the peer forget what it has."""
        raise NotImplementedError

    def count(self) -> int:
        """How many events the peer has."""
        raise NotImplementedError

    def library_seconds(self, events: int) -> float:
        """Sends so many with the library alone."""
        raise NotImplementedError

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """More arguments of the program."""

    def program(self, source: Path, *libraries: str) -> Path:
        """A program in C++, compiled."""
        made = BUILD / "bench" / f"{self.kind}-{source.stem}"
        made.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["g++", "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", "-o", made, source, *libraries], check=True)
        return made

    def seconds_of(self, *argv: object) -> float:
        """What a program prints."""
        return float(subprocess.run([str(argument) for argument in argv], check=True, stdout=subprocess.PIPE).stdout)

    def _alone(self, events: int) -> float:
        self.empty()
        seconds = self.library_seconds(events)
        assert self.count() == events
        return events / seconds

    def _outbox(self, db: Database, events: int) -> float:
        self.empty()
        db.sql("SELECT outbox.pause('bench')")
        db.sql("SELECT count(outbox.enqueue('Order', n::text, 'order.made', jsonb_build_object('x', repeat('x', %s - 9)))) FROM generate_series(1, %s) AS n",
               self.payload, events)
        db.sql("VACUUM ANALYZE outbox.events_pending")
        db.sql("CHECKPOINT")
        began = time.monotonic()
        db.sql("SELECT outbox.resume('bench')")
        wait_until(lambda: not db.value("SELECT EXISTS (SELECT FROM outbox.events_pending)"), 600, "the backlog to be delivered")
        seconds = time.monotonic() - began
        assert self.count() == events
        return events / seconds

    def main(self) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("--events", type=int, default=self.events)
        parser.add_argument("--rounds", type=int, default=3)
        self.add_arguments(parser)
        self.given = given = parser.parse_args()
        with Rig(f"bench-{self.kind}") as rig:
            db = Database(rig.postgres(settings={"max_wal_size": "4GB"}), "bench").create()
            self.start(rig)
            db.sql(f"CREATE EXTENSION outbox_{self.kind}")
            db.sql(f"CREATE SERVER bench FOREIGN DATA WRAPPER outbox_{self.kind} OPTIONS ({self.options()})")
            if options := self.mapping():
                db.sql(f"CREATE USER MAPPING FOR PUBLIC SERVER bench OPTIONS ({options})")
            self._alone(max(1, given.events // 10))  # warms the peer up
            rounds = []
            for number in range(1, given.rounds + 1):
                rounds.append((self._alone(given.events), self._outbox(db, given.events)))
                print(f"round {number}: {self.told(*rounds[-1], rounds[-1][1] / rounds[-1][0])}", flush=True)
            db.disconnect()
            alone, outbox = map(statistics.median, zip(*rounds))
            print(f"{given.events:,} events of {self.payload} bytes, {given.rounds} rounds, load {os.getloadavg()[0]:.1f}, median: "
                  f"{self.told(alone, outbox, statistics.median(o / a for a, o in rounds))}")

    def told(self, alone: float, outbox: float, ratio: float) -> str:
        return f"{self.library} alone {alone:,.0f}/s, outbox {outbox:,.0f}/s, ratio {ratio:.2f}"
