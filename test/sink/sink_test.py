"""The books of a kind of sink, as `make chaos` keeps them for Kafka and webhooks: writers commit, roll back, prepare and use savepoints, while
peer and server are broken and repaired; then every committed event arrived, no other one did, each key is in order, and no fault caused more
duplicates than there were events in flight.

  python3 sink_test.py PEER.py [--pg-config PATH]   CYCLES=20 and SEED= come from the environment

Exit code 1 when the books are wrong; the last line is `N cycles passed, N failed; seed S`."""

import argparse
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHAOS = HERE if (HERE / "checker.py").exists() else HERE.parent / "chaos"  # installed, or in the source tree
sys.path[:0] = [str(HERE), str(CHAOS)]

import peers  # noqa: E402
from checker import Finding, check, repeats  # noqa: E402
from history import Arrival, Fault, History  # noqa: E402
from plan import Plan  # noqa: E402
from server import Server  # noqa: E402
from writers import WRITERS, Writer, all_keys  # noqa: E402

SINK = "sut"
MAX_IN_FLIGHT = 40  # small, so that the bound on duplicates is tested
STUCK_S = 60  # give up when nothing changes for this many seconds although every part is healthy
SHOWN = 3  # findings of each kind
RETRY = "exponential 50ms..500ms"
SERVER_FAULTS = ("kill_worker", "terminate_worker", "stop_immediate", "restart_fast")
LASTS_S = (0.2, 1.5)  # a fault that has an end


class Run:
    def __init__(self, peer: type[peers.Peer], pg_config: str, seed: int):
        self.seed = seed
        self.server = Server(pg_config, MAX_IN_FLIGHT)
        place = self.server.dir / "peer"
        place.mkdir()
        place.chmod(0o777)
        try:
            self.peer = peer(place)
            self._prepare()
        except BaseException:
            self.server.close(keep_files=True)
            raise
        self._histories: dict[int, History] = {}
        self._cycle_of: dict[str, int] = {}

    def _prepare(self) -> None:
        sql = self.server.sql
        sql("CREATE EXTENSION outbox")
        sql(f"CREATE EXTENSION {self.peer.extension}")
        sql((CHAOS / "schema.sql").read_text())
        sql("INSERT INTO chaos.aggregates SELECT unnest(%s::text[])", all_keys())
        for statement in self.peer.statements():
            sql(statement)
        if not sql("SELECT 1 FROM pg_foreign_server WHERE srvname = %s", SINK):
            raise SystemExit(f'the statements of class Peer create no server "{SINK}"')
        if not sql("SELECT 1 FROM pg_foreign_server, pg_options_to_table(srvoptions) WHERE srvname = %s AND option_name = 'retry'", SINK):
            sql(f"ALTER SERVER {SINK} OPTIONS (ADD retry '{RETRY}')")

    # ---- a cycle ---------------------------------------------------------------------------------------------------

    def cycle(self, number: int) -> bool:
        began = time.monotonic()
        plan = Plan(self.seed, number)
        dice = plan.dice("sink test")
        plan.seconds = dice.uniform(1.0, 1.8)
        plan.asynchronous = dice.choice([0, 0.3])
        history = self._histories[number] = History(number)
        writers = [Writer(self.server, plan, history, n) for n in range(WRITERS)]
        for writer in writers:
            writer.start()
        try:
            self._break(dice, plan.seconds, history)
        finally:
            for writer in writers:
                writer.finish()
        drained = self._drain()
        self._cycle_of |= {id: number for id in history.events}
        found = [Finding("crash", line) for line in self.server.crashes()] + self._check(history)
        self._tell(number, history, found, drained, time.monotonic() - began)
        return not found

    def _break(self, dice: random.Random, seconds: float, history: History) -> None:
        """One fault of the peer, of the server, of both, or none, at a time within the burst."""
        chosen = [dice.choice(peers.faults(self.peer))] * (dice.random() < 0.8) + [dice.choice(SERVER_FAULTS)] * (dice.random() < 0.4)
        dice.shuffle(chosen)
        until = time.monotonic() + seconds
        for name in chosen:
            time.sleep(dice.uniform(0.1, 0.8) * seconds / len(chosen))
            # What is told twice is counted by cycle: a peer need not know when an event arrived.
            history.faults.append(Fault(name, 0, float("inf"), MAX_IN_FLIGHT))
            if name in SERVER_FAULTS:
                getattr(self, f"_{name}")()
            else:
                getattr(self.peer, name)()
                if end := peers.FAULTS[name]:
                    time.sleep(dice.uniform(*LASTS_S))
                    getattr(self.peer, end)()
        time.sleep(max(0.3, until - time.monotonic()))

    def _kill_worker(self) -> None:
        os.kill(self.server.worker(), signal.SIGKILL)
        self.server.sql("SELECT 1")

    def _terminate_worker(self) -> None:
        self.server.sql("SELECT pg_terminate_backend(%s, 10000)", self.server.worker())

    def _stop_immediate(self) -> None:
        self.server.stop("immediate")
        self.server.start()

    def _restart_fast(self) -> None:
        self.server.stop("fast")
        self.server.start()

    def _pending(self) -> int:
        return self.server.sql("SELECT count(*) FROM outbox.events_pending")[0][0]

    def _drain(self) -> float:
        """Waits until nothing is pending, or nothing changes any more. Returns seconds."""
        started = moved = time.monotonic()
        before = -1
        while (pending := self._pending()) and time.monotonic() < moved + STUCK_S:
            if pending != before:
                before, moved = pending, time.monotonic()
            time.sleep(0.05)
        return time.monotonic() - started

    # ---- the books -------------------------------------------------------------------------------------------------

    def _check(self, history: History) -> list[Finding]:
        history.settle({str(id): n for id, n in self.server.sql("SELECT id, n FROM chaos.ledger WHERE cycle = %s", history.cycle)})
        self.server.sql("INSERT INTO chaos.ledger VALUES (gen_random_uuid(), 0, 0)")  # a synchronous commit: what was read survives the next crash
        history.waiting = {(str(id), sink): status for id, sink, status in self.server.sql(
            "SELECT id, sink, coalesce(status, 'PENDING') FROM outbox.events WHERE status IS DISTINCT FROM 'SENT'")}
        touched = {history.cycle}
        for arrived in self.peer.read():
            cycle = self._cycle_of.get(arrived.id, history.cycle)
            touched.add(cycle)
            into = self._histories[cycle]
            into.arrivals.append(Arrival(SINK, arrived.id, arrived.payload.get("key"), arrived.payload.get("n"), arrived.payload.get("id"), 0, True,
                                         f"arrival {len(into.arrivals) + 1} of cycle {cycle}"))
        for cycle in touched - {history.cycle}:  # an event of an earlier cycle arrived again
            self._histories[cycle].faults += history.faults
        return [finding for cycle in sorted(touched) for finding in check(self._histories[cycle], (SINK,))]

    def _tell(self, number: int, history: History, found: list[Finding], drained: float, seconds: float) -> None:
        committed = sum(event.committed for event in history.events.values())
        failed = sum(status == "FAILED" for status in history.waiting.values())
        print(f"cycle {number:3} {'FAILED' if found else 'ok'}  {committed} of {len(history.events)} events committed, {len(repeats(history))} again, "
              f"{failed} dead letters; drained in {drained:.1f} of {seconds:.1f} s; {', '.join(f.name for f in history.faults) or 'no fault'}", flush=True)
        for kind, count in Counter(finding.kind for finding in found).items():
            print(f"{kind.upper()}: {count}", *[f"  {f.text}; {', '.join(f.ids)}" for f in found if f.kind == kind][:SHOWN], sep="\n", flush=True)
        if found:
            print(*self.server.sql("SELECT name, state, pending, blocked, in_flight, failed, last_error FROM outbox.sinks"), f"log: {self.server.log}", sep="\n")

    def close(self, keep_files: bool) -> None:
        self.peer.close()
        self.server.close(keep_files)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", type=Path)
    parser.add_argument("--pg-config", default=os.environ.get("PG_CONFIG") or "pg_config")
    given = parser.parse_args()
    cycles, seed = int(os.environ.get("CYCLES") or 20), int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6))
    run = Run(peers.load(given.peer), given.pg_config, seed)
    passed = 0
    print(f"{cycles} cycles, seed {seed}; faults of the peer: {', '.join(peers.faults(run.peer))}", flush=True)
    try:
        while passed < cycles and run.cycle(passed + 1):
            passed += 1
    finally:
        run.close(keep_files=passed < cycles)
    failed = int(passed < cycles)
    print(f"{passed} cycles passed, {failed} failed; seed {seed}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
