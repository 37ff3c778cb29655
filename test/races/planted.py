#!/usr/bin/env python3
"""Takes locks out of the code, one at a time, and shows what ThreadSanitizer reports:

  test/races/planted.py [NAME...]
  test/races/planted.py texts        only whether each piece still stands in the source

It changes a copy of the checkout, build/races. Without an error the tests must pass, which is tried first if no NAME is
given. Needs what `make test-races` has built."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(HERE / "test/rig"))
from outbox_rig.planted import Error, changed, check  # noqa: E402

ROOT = HERE / "build/races"
MAKE = ["make", "--no-print-directory", f"-j{os.cpu_count()}", "-f", "test/unit/Makefile", "SAN=thread"]
WEBHOOKS = "Webhook.KeepsOrderPerKeyManyKeysAtOnceOverFewConnections"


def race(function: str) -> str:
    """A report that names the function in one of its two accesses."""
    return rf"^WARNING: ThreadSanitizer: data race[^\n]*\n(?:[^\n]+\n|\n)*?[^\n]*#\d+ outbox::{function}"


PLANTED = {
    "librdkafka's callback and our thread": Error(
        "sinks/kafka/kafka_producer.cpp", "    std::lock_guard lock(endings_mutex_);\n    if (ending", "    if (ending",
        race("KafkaProducer::(add_ending|ended)"), "KafkaTest.ManyEventsKeepTheOrderOfTheirKeys"),
    "HTTP thread and submit()": Error(
        "src/delivery/http/http_loop.cpp", "    std::lock_guard lock(mutex_);\n    tasks_.push_back", "    tasks_.push_back",
        race("HttpLoop::(post|run_tasks)"), WEBHOOKS),
}


def build() -> None:
    done = subprocess.run([*MAKE, "all", f"WITH={WITH}"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-3000:] + done.stderr[-3000:])


def test(tests: str) -> subprocess.CompletedProcess:
    return subprocess.run([*MAKE, "run", f"WITH={WITH}", f"FILTER={tests}"], cwd=ROOT, capture_output=True, text=True, errors="replace")


if __name__ == "__main__":
    if sys.argv[1:] == ["texts"]:
        sys.exit("\n".join(changed(PLANTED, HERE)) or None)
    WITH = subprocess.run(["bash", "-c", ". test/rig/env.sh && races_folder"], cwd=HERE, check=True, capture_output=True, text=True).stdout.strip()
    shutil.rmtree(ROOT, ignore_errors=True)
    for folder in ("src", "sinks", "test", "build/unit/thread"):
        shutil.copytree(HERE / folder, ROOT / folder, symlinks=True)
    sys.exit(check(ROOT, PLANTED, sys.argv[1:], build, test))
