#!/usr/bin/env python3
"""make fuzz: runs each fuzz target for some seconds, as many side by side as there are processors, and says what they reached.

test/fuzz/fuzz.py [--seconds N | --same] [--minimize] [TARGET]...: 60 seconds each. --same is for the suite `fuzz`: the same executions each time,
from test/fuzz/inputs.txt on, with numbers of executions instead of seconds. Without it, runs also begin with what earlier ones have found, in
build/fuzz/corpus/TARGET; --minimize leaves its smallest part that reaches as much. Exit code 1 when a property of a target did not hold: the input is
printed, and the command that replays it.

inputs.txt, and sinks/<kind>/test/fuzz.txt for the target of a kind, has the hand-made inputs below their [TARGET], one a line: its name, a space, and its bytes as a literal of Python (b'a\\n'). A line that
begins with a quotation mark is a word of libFuzzer's dictionary."""

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HERE, OUT, KINDS = ROOT / "test/fuzz", ROOT / "build/fuzz", ROOT / "sinks"
LONGEST = 4096  # bytes of an input

# Of --same: about five seconds on a quiet machine. A new target gets the first number.
EXECUTIONS = 20_000
OTHER_EXECUTIONS = {
    "base64": 50_000, "http_wait": 40_000, "match": 40_000, "network": 40_000, "rate": 40_000, "values": 40_000, "placement": 10_000,
    "pem": 500, "preview": 5_000, "secret_mask": 1_500, "options": 3_000, "aws": 3_000, "grpc": 3_000, "nats": 9_000,
}


@dataclass
class Run:
    target: str
    code: int
    log: Path
    seconds: float

    def statistic(self, pattern: str) -> int:
        found = re.findall(pattern, self.log.read_text(errors="replace"))
        return int(found[-1]) if found else 0

    @property
    def executions(self) -> int:
        return self.statistic(r"stat::number_of_executed_units: (\d+)") or self.statistic(r"(?m)^#(\d+)\t")

    @property
    def inputs(self) -> list[Path]:
        """For which a property did not hold."""
        return [ROOT / name for name in re.findall(r"Test unit written to (\S+)", self.log.read_text(errors="replace"))]

    def line(self) -> str:
        coverage, corpus = self.statistic(r"cov: (\d+)"), self.statistic(r"corp: (\d+)")
        ended = "ok" if self.code == 0 else "FAILED"
        return f"{self.target:<12} {self.executions:>10} {self.executions / max(self.seconds, 1):>10.0f} {coverage:>8} {corpus:>7}  {ended}"


def targets() -> list[str]:
    """Those of a kind only where its library is there."""
    kinds = (path.parts[-3] for path in KINDS.glob("*/test/fuzz.cpp"))
    return sorted([path.stem for path in HERE.glob("*.cpp")] + [kind for kind in kinds if (OUT / "bin" / kind).exists()])


def inputs_of(target: str) -> str:
    own = KINDS / target / "test/fuzz.txt"
    return (own if own.exists() else HERE / "inputs.txt").read_text()


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def unpack(target: str) -> Path:
    """A folder with a file for each hand-made input, and beside it the dictionary, as libFuzzer reads them."""
    folder, words = fresh(OUT / "inputs" / target), ["# libFuzzer refuses an empty dictionary\n"]
    [lines] = re.findall(rf"^\[{target}\]\n((?:[^\[].*\n)*)", inputs_of(target), re.MULTILINE)
    for line in lines.splitlines():
        if line.startswith('"'):
            words.append(line + "\n")
        else:
            name, literal = line.split(" ", 1)
            (folder / name).write_bytes(ast.literal_eval(literal))
    folder.with_suffix(".dict").write_text("".join(words))
    return folder


def fuzz(target: str, seconds: int, seed: int, same: bool) -> Run:
    found, hand_made, crashes = OUT / "corpus" / target, unpack(target), OUT / "failed"
    if same:
        found = fresh(OUT / "same" / target)  # what earlier runs found would change what this one does
    for folder in (found, crashes, OUT / "logs"):
        folder.mkdir(parents=True, exist_ok=True)
    log = OUT / "logs" / f"{target}.log"
    if same:
        # A folder is read in the order of the file system, a list in its own. Addresses are drawn anew, except by setarch -R.
        inputs = OUT / "same" / f"{target}.inputs"
        inputs.write_text(",".join(str(path.relative_to(ROOT)) for path in sorted(hand_made.iterdir())))
        end, folders = [f"-runs={OTHER_EXECUTIONS.get(target, EXECUTIONS)}", f"-seed={seed}", "-reload=0", f"-seed_inputs=@{inputs}"], [found]
    else:
        end, folders = [f"-max_total_time={seconds}", f"-seed={seed}"], [found, hand_made]
    begin = time.monotonic()
    with log.open("wb") as to:
        code = subprocess.run([*(["setarch", "-R"] if same else []), OUT / "bin" / target, *end, f"-max_len={LONGEST}", "-timeout=60", "-rss_limit_mb=2048", "-malloc_limit_mb=64",
                               "-print_final_stats=1", "-use_value_profile=0", f"-artifact_prefix={crashes.relative_to(ROOT)}/{target}-",
                               f"-dict={hand_made.with_suffix('.dict')}", *folders],
                              cwd=ROOT, stdin=subprocess.DEVNULL, stdout=to, stderr=subprocess.STDOUT, env=os.environ | SANITIZERS).returncode
    return Run(target, code, log, time.monotonic() - begin)


# Not inherited by chance. OpenSSL and librdkafka keep some memory until the process ends, which is no leak.
SANITIZERS = {"ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=0", "UBSAN_OPTIONS": "print_stacktrace=1"}


def report(run: Run) -> None:
    text = run.log.read_text(errors="replace")
    print(f"\n{run.target}:")
    for line in re.findall(r"(?m)^.*(?:does not hold|runtime error|ERROR: |SUMMARY: |#\d+ 0x.* in (?:outbox|fuzz)::).*$", text)[:20]:
        print(f"    {line}")
    for path in run.inputs:
        print(f"    input, {path.stat().st_size} bytes: {path.read_bytes()[:2000]!r}")
        print(f"    replay: build/fuzz/bin/{run.target} {path.relative_to(ROOT)}")
    print(f"    log: {run.log.relative_to(ROOT)}")


def minimize(target: str) -> None:
    """Leaves the smallest inputs that reach what all reach."""
    found, merged = OUT / "corpus" / target, fresh(OUT / "merged" / target)
    subprocess.run([OUT / "bin" / target, "-set_cover_merge=1", f"-max_len={LONGEST}", merged, OUT / "inputs" / target, found],
                   cwd=ROOT, check=True, capture_output=True, env=os.environ | SANITIZERS)
    shutil.rmtree(found)
    merged.rename(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="0: a fresh one")
    parser.add_argument("--same", action="store_true", help="the same executions each time")
    parser.add_argument("--minimize", action="store_true")
    parser.add_argument("targets", nargs="*")
    arguments = parser.parse_args()
    chosen = arguments.targets or targets()
    if unknown := set(chosen) - set(targets()):
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(targets())}")

    print(f"{'target':<12} {'executions':>10} {'per second':>10} {'coverage':>8} {'corpus':>7}", flush=True)
    runs = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for run in pool.map(lambda target: fuzz(target, arguments.seconds, arguments.seed or int(arguments.same), arguments.same), chosen):
            print(run.line(), flush=True)
            runs.append(run)
    failed = [run for run in runs if run.code != 0]
    for run in failed:
        report(run)
    if arguments.minimize and not failed:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(minimize, chosen))
    print(f"{len(runs)} targets, {sum(run.executions for run in runs)} executions, {len(failed)} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
