"""The benchmark of a kind that is an extension: a backlog's way from the table to the peer, beside a program that sends the same with
the client library alone, in turns in one run. sinks/KIND/bench.py says how, and `make -C sinks/KIND bench` runs it. With `--round-trip 2` a proxy
delays each byte between them and the peer, as a network does, and the time from commit to acknowledgement is measured too.

Only the ratio counts: the peer, the load and everything else share the machine."""

import argparse
import atexit
import os
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from outbox_rig import Rig, wait_until
from outbox_rig.database import Database
from outbox_rig.paths import BUILD
from outbox_rig.process import free_port


class BesideLibrary:
    kind = library = ""
    payload, window = 300, 2000  # bytes of an event; how many may be unacknowledged
    events = 100_000

    def __init__(self) -> None:
        self._ways: dict[int, int] = {}  # the proxies' ports, by the peer's

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

    def reach(self, port: int) -> int:
        """Where the sink and the library reach this port of the peer."""
        if not self.given.round_trip:
            return port
        if port not in self._ways:
            delay = self.program(Path(__file__).parent / "delay.cpp", "-pthread")
            self._ways[port] = free_port()
            argv = [str(delay), str(self._ways[port]), str(port), str(int(self.given.round_trip * 500))]
            proxy = subprocess.Popen(argv, stdout=subprocess.PIPE)
            atexit.register(proxy.kill)
            proxy.stdout.readline()
        return self._ways[port]

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

    def _latencies(self, db: Database, rate: float) -> str:
        """From just before commit to the acknowledgement, at this rate."""
        self.empty()
        db.sql("ALTER SERVER bench OPTIONS (ADD retention '1h')")
        began, n = time.monotonic(), int(rate * self.given.seconds)
        with db.connect() as connection:
            connection.execute("SET synchronous_commit = off")  # the disk is not what is measured
            for number in range(n):
                time.sleep(max(0, began + number / rate - time.monotonic()))
                connection.execute("SELECT outbox.enqueue('Order', %s::text, 'order.made', jsonb_build_object('x', repeat('x', %s - 9)))", [number, self.payload])
        wait_until(lambda: db.value("SELECT count(*) FROM outbox.events WHERE status = 'SENT'") == n, 60, "the events to be delivered")
        [(times,)] = db.sql("""SELECT percentile_cont(ARRAY[0.5, 0.99, 0.999]) WITHIN GROUP (ORDER BY extract(epoch FROM sent_at - created_at) * 1000)
                               FROM outbox.events WHERE status = 'SENT'""")
        return f"at {rate:,.0f}/s commit to acknowledgement p50, p99, p99.9: " + ", ".join(f"{time:.2f}" for time in times) + " ms"

    def main(self) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("--events", type=int, default=self.events)
        parser.add_argument("--rounds", type=int, default=3)
        parser.add_argument("--round-trip", type=float, default=0, help="milliseconds")
        parser.add_argument("--seconds", type=float, default=10, help="of the measure of latency")
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
            alone, outbox = map(statistics.median, zip(*rounds))
            print(f"{given.events:,} events of {self.payload} bytes, {given.rounds} rounds, load {os.getloadavg()[0]:.1f}, median: "
                  f"{self.told(alone, outbox, statistics.median(o / a for a, o in rounds))}")
            if given.round_trip:
                print(f"round trip {given.round_trip:g} ms, " + self._latencies(db, min(1000, outbox / 2)))
            db.disconnect()

    def told(self, alone: float, outbox: float, ratio: float) -> str:
        return f"{self.library} alone {alone:,.0f}/s, outbox {outbox:,.0f}/s, ratio {ratio:.2f}"
