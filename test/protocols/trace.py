#!/usr/bin/env python3
"""test/protocols/trace.py LOG...: replays what real workers logged at debug2 against shards.pml (and for test_redrive_trace.py against redrive.pml). Each shard of each sink is one trace; spin looks for an
execution of the model that does the same steps in the same order. If there is none, the workers did what the model does not allow.

The lines of one log are in the order of the steps: a step that other processes can see is logged under the lock, and a claim or a recording
belongs between its own worker's steps."""

import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
STEPS = ["SPREAD", "TAKES", "FOLLOWS", "BEGINS", "CLAIMS", "ENDS", "RESIGNS", "EXITS", "SHARD_IS", "DIES", "LOCKS", "COMMITS"]  # of trace.pml
SHARDS = 256
LINE = re.compile(r"\[(?P<pid>\d+)\] [^\n]*?(?:DEBUG:  outbox (?:worker (?P<index>\d+) of database (?P<database>\d+) (?P<slot>takes its slot|resigns|exits)"
                  r"|shards of database (?P<spread>\d+) are spread, workers: (?P<workers>\d+)"
                  r"|shards of (?P<new>new )?sink \"(?P<shards>[^\"]*)\": owns (?P<owns>\w+), claims (?P<claims>\w+), drains (?P<drains>\w+)"
                  r"|event (?P<claimed>\d+) of sink \"(?P<claimer>[^\"]*)\" is of shard (?P<shard>\d+)"
                  r"|event (?P<ended>\d+) of sink \"(?P<ender>[^\"]*)\": (?:delivered|failed|dead|gone|returned)\b)"
                  r"|LOG:  (?P<restart>starting PostgreSQL|all server processes terminated; reinitializing))")


@dataclass
class Step:
    name: str
    worker: int
    value: int
    line: int


@dataclass
class Trace:
    """What happened to one shard of one sink since the server's last start."""
    sink: str
    shard: int
    steps: list[Step] = field(default_factory=list)
    handed_over: bool = False  # with events in flight, whatever the worker says of them
    claims: int = 0

    def key(self) -> tuple:
        """Equal for traces of which one stands for all."""
        workers = math.lcm(*(step.value for step in self.steps if step.name == "SPREAD"))
        return self.shard % workers, tuple((step.name, step.worker, step.value) for step in self.steps)


@dataclass
class Worker:
    database: int
    index: int
    in_flight: dict[tuple[str, int], int] = field(default_factory=dict)  # (sink, position): shard
    has: dict[str, list[int]] = field(default_factory=dict)  # of each shard of a sink: what FOLLOWS says


def members(words: str) -> int:
    """Bit n: shard n. A word of 64 shards is 16 digits."""
    return sum(int(words[n * 16:(n + 1) * 16], 16) << 64 * n for n in range(SHARDS // 64))


class Reader:
    """The traces of a server's run; a restart of the server begins new ones."""

    def __init__(self) -> None:
        self.workers: dict[int, Worker] = {}  # by process
        self.common: dict[int, list[Step]] = {}  # of each database: the steps of all its shards
        self.own: dict[tuple[int, str, int], list[Step]] = {}  # (database, sink, shard)
        self.claims: dict[tuple[int, str, int], int] = {}
        self.handed: set[tuple[int, str, int]] = set()
        self.unknown: set[tuple[int, str]] = set()  # sinks whose first lines are missing

    def add(self, found: re.Match, line: int) -> None:
        pid = int(found["pid"])
        worker = self.workers.get(pid)
        if found["slot"]:
            self._slot(found, pid, line)
        elif found["spread"]:
            self.common.setdefault(int(found["spread"]), []).append(Step("SPREAD", 0, int(found["workers"]), line))
        elif worker and found["shards"] is not None:
            self._shards(found, worker, line)
        elif worker and found["claimed"]:
            place = found["claimer"], int(found["claimed"])
            worker.in_flight[place] = int(found["shard"])
            self._of_event("CLAIMS", worker, place, line)
        elif worker and found["ended"] and (found["ender"], int(found["ended"])) in worker.in_flight:
            place = found["ender"], int(found["ended"])
            self._of_event("ENDS", worker, place, line)
            del worker.in_flight[place]

    def _slot(self, found: re.Match, pid: int, line: int) -> None:
        database, index = int(found["database"]), int(found["index"])
        steps = self.common.setdefault(database, [])
        if found["slot"] == "takes its slot":
            self.workers[pid] = Worker(database, index)
            steps.append(Step("TAKES", index, 0, line))
        elif self.workers.pop(pid, None):
            steps.append(Step("RESIGNS" if found["slot"] == "resigns" else "EXITS", index, 0, line))

    def _shards(self, found: re.Match, worker: Worker, line: int) -> None:
        sink = found["shards"]
        if not found["new"] and sink not in worker.has:
            self.unknown.add((worker.database, sink))
        before = worker.has.setdefault(sink, [0] * SHARDS)
        flying = {(name, shard) for (name, _), shard in worker.in_flight.items()}
        owns, claims, drains = (members(found[name]) for name in ("owns", "claims", "drains"))
        for shard in range(SHARDS):
            has = (claims >> shard & 1) + (drains >> shard & 1) * 2 + (owns >> shard & 1) * 3
            if has != before[shard]:
                key = worker.database, sink, shard
                self.own.setdefault(key, []).append(Step("BEGINS" if found["new"] else "FOLLOWS", worker.index, has, line))
                if before[shard] >= 3 > has and (sink, shard) in flying:
                    self.handed.add(key)
                before[shard] = has

    def _of_event(self, step: str, worker: Worker, place: tuple[str, int], line: int) -> None:
        key = worker.database, place[0], worker.in_flight[place]
        self.own.setdefault(key, []).append(Step(step, worker.index, 0, line))
        self.claims[key] = self.claims.get(key, 0) + (step == "CLAIMS")

    def traces(self) -> Iterator[Trace]:
        for (database, sink, shard), steps in self.own.items():
            if (database, sink) in self.unknown or not self.claims.get((database, sink, shard)):
                continue
            whole = sorted([*self.common.get(database, []), *steps], key=lambda step: step.line)
            yield Trace(sink, shard, whole, (database, sink, shard) in self.handed, self.claims[database, sink, shard])


def read(log: Path) -> list[Trace]:
    traces: list[Trace] = []
    reader = Reader()
    with open(log, errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if found := LINE.search(line):
                if found["restart"]:
                    traces += reader.traces()
                    reader = Reader()
                else:
                    reader.add(found, number)
    return traces + list(reader.traces())


EVENT = re.compile(r"DEBUG:  outbox event (?P<position>\d+) of sink \"(?P<sink>[^\"]*)\": (?P<what>claimed|returned|delivered|dead)\b")


def read_key(log: Path, sink: str, positions: list[int], user: list[Step]) -> Trace:
    """What a worker did with the events of a key, for redrive.pml, and what a user did to them."""
    found: list[tuple[int, str, int]] = []  # (line, what, which event)
    with open(log, errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if (event := EVENT.search(line)) and event["sink"] == sink and int(event["position"]) in positions:
                found.append((number, event["what"], positions.index(int(event["position"]))))
    kept: list[tuple[int, str, int]] = []
    for each in found:
        if each[1] != "returned":
            kept.append(each)
        else:  # claimed, and given back unsent, for example because its row was locked
            kept.remove(next(claim for claim in reversed(kept) if claim[1:] == ("claimed", each[2])))
    steps: list[Step] = []
    recorded: list[tuple[int, str, int]] = []  # by one transaction, which records failures first, whatever the order of its lines

    def flush() -> None:
        recorded.sort(key=lambda each: (each[1] != "dead", each[2]))
        steps.extend(Step("DIES" if what == "dead" else "ENDS", which, 0, number) for number, what, which in recorded)
        recorded.clear()

    for number, what, which in kept:
        if what == "claimed":
            flush()
            steps.append(Step("CLAIMS", which, 0, number))
        else:
            recorded.append((number, what, which))
    flush()
    return Trace(sink, 0, [*steps, *user])


class Model:
    """A model, compiled for traces."""

    def __init__(self, folder: Path, name: str = "shards"):
        self.folder, self.name = folder, name
        subprocess.run(["spin", "-DTRACE", "-a", HERE.resolve() / f"{name}.pml"], cwd=folder, check=True, capture_output=True)
        subprocess.run(["gcc", "-w", "-O1", "-DSAFETY", "-DNOREDUCE", "-o", "pan", "pan.c"], cwd=folder, check=True)

    def refuses(self, trace: Trace, name: str = "trace") -> Step | None:
        """The first step that the model cannot do, or None if it can do all."""
        steps, reached = self.folder / name, self.folder / f"{name}.reached"
        head = [(STEPS.index("SHARD_IS"), 0, trace.shard)] if self.name == "shards" else []
        numbers = [*head, *((STEPS.index(step.name), step.worker, step.value) for step in trace.steps)]
        steps.write_text("".join("{} {} {}\n".format(*each) for each in numbers))
        said = subprocess.run(["./pan", f"-m{1000 + 50 * len(trace.steps)}", "-w12", "-c1"], cwd=self.folder, env={"TRACE": str(steps), "REACHED": str(reached)},
                              check=True, capture_output=True, text=True).stdout
        assert "max search depth too small" not in said and "errors:" in said, said
        if "errors: 1" in said:
            assert "assertion violated 0" in said, said  # the trace's end, not a promise of the model
            return None
        return trace.steps[min(int(reached.read_text().split()[0]) + 1 - len(head), len(trace.steps) - 1)]


def replay(model: Model, traces: list[Trace]) -> list[tuple[Trace, Step]]:
    """The traces that the model refuses, each with the step. Shards with the same steps are replayed once."""
    different = list({trace.key(): trace for trace in traces}.values())
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda each: model.refuses(each[1], f"trace{each[0]}"), enumerate(different)))
    return [(trace, step) for trace, step in zip(different, answers) if step]


def main(logs: list[str]) -> int:
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        model = Model(Path(folder))
        for log in logs:
            traces = read(Path(log))
            found = replay(model, traces)
            for trace, step in found:
                print(f"{log}:{step.line}: shard {trace.shard} of sink \"{trace.sink}\": the model does not allow {step.name} of worker {step.worker}")
            print(f"{log}: {len(traces)} shards with {sum(trace.claims for trace in traces)} claims, {sum(trace.handed_over for trace in traces)} handed over "
                  f"with events in flight, {len(found)} refused")
            refused += len(found)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
