"""make chaos-night: chaos with one fresh seed after the other until it is stopped (Ctrl-C, SIGTERM, or after HOURS).

Each seed is a run of its own of CYCLES cycles (20), on fresh servers, and afterwards what the workers logged is replayed against the model of shards
(test/protocols/trace.py, where spin is installed). build/chaos/night.txt gets a line for each seed. A seed that fails is kept in
build/chaos/failed/SEED/ with its output and the logs, and the next seed begins."""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from outbox_rig.paths import BUILD, LOGS, ROOT

OUT = BUILD / "chaos"
NAME = "chaos-night"  # of the rig, so that `make chaos` can run meanwhile


class Stopped(Exception):
    pass


def stop(*_) -> None:
    raise Stopped


def run(argv: list[str | Path], output: Path) -> int:
    """A child is stopped with us, and waited for: it stops its servers."""
    with open(output, "ab") as to:
        child = subprocess.Popen([*map(str, argv)], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=to, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            return child.wait()
        except Stopped:
            child.send_signal(signal.SIGTERM)
            child.wait()
            raise


def logs() -> list[Path]:
    return sorted(LOGS.glob(f"{NAME}-*.log"))


def one(seed: int, cycles: int) -> list[str]:
    """What failed: nothing, "chaos", "trace"."""
    output = OUT / "output.txt"
    output.unlink(missing_ok=True)
    for log in logs():
        log.unlink()
    failed = []
    if run([sys.executable, "-u", ROOT / "test/chaos/chaos.py", "--cycles", str(cycles), "--seed", str(seed), "--name", NAME], output):
        failed.append("chaos")
    servers = [log for log in logs() if "-postgres" in log.name]
    if shutil.which("spin") and servers and run([sys.executable, ROOT / "test/protocols/trace.py", *servers], output):
        failed.append("trace")
    if failed:
        kept = OUT / "failed" / str(seed)
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        for file in (output, *logs()):
            shutil.copy(file, kept)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=int(os.environ.get("CYCLES") or 20), help="of each seed")
    parser.add_argument("--hours", type=float, default=float(os.environ.get("HOURS") or "inf"))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6)), help="the first; the others follow")
    given = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    until, seeds, failed = time.monotonic() + given.hours * 3600, 0, []
    try:
        while time.monotonic() < until:
            seed = given.seed + seeds
            began = time.monotonic()
            found = one(seed, given.cycles)
            line = f"seed {seed}: {' and '.join(found) + ' FAILED' if found else 'ok'}, {given.cycles} cycles, {time.monotonic() - began:.0f} s"
            with open(OUT / "night.txt", "a") as to:
                to.write(line + "\n")
            print(line, flush=True)
            seeds += 1
            failed += [seed] * bool(found)
    except Stopped:
        pass
    print(f"{seeds} seeds of {given.cycles} cycles, {len(failed)} failed" + "".join(f"; see build/chaos/failed/{seed}" for seed in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
