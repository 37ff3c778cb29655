#!/usr/bin/env python3
"""Takes checks out of the SQL surface, one at a time, and shows after how many examples the model finds that:

  test/model/guards.py [EXAMPLES] [NAME...]

Each is built in a copy and installed; at the end the checkout's own build is installed again. A check that EXAMPLES (150) do not miss is told as
missed: then the model has no step for it, or the check is not needed."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
COPY = ROOT / "build" / "model-guards"
SEED = "1"

# name: (file of src, the check, without it)
GUARDS = {
    "redrive: overtaken": ("extension/45_redrive.sql", "letter.overtaken_by IS NOT NULL AND letter.ordered", "false AND letter.ordered"),
    "redrive: pending again": ("extension/45_redrive.sql", "ELSIF EXISTS (SELECT FROM outbox.events_pending", "ELSIF false AND EXISTS (SELECT FROM outbox.events_pending"),
    "ack: what it overtook": ("extension/37_manual.sql", "IF sink.ordered AND EXISTS (", "IF false AND EXISTS ("),
    "nack: later events": ("extension/37_manual.sql", "later_too := lease.single = 0 AND", "later_too := false AND"),
    "claim: dead letters block": ("extension/38_claim.sql", "CASE WHEN sink.block THEN (", "CASE WHEN false THEN ("),
    "claim: paused": ("extension/38_claim.sql", "IF sink.paused THEN", "IF false THEN"),
    "adopt: dead letters": ("extension/44_adopt.sql", "WHERE status = 'FAILED' AND origin <> here", "WHERE status = 'FAILED' AND false"),
    "rename: a pause follows": ("server/catalog/sink_ddl.cpp", "      stopped_sinks_rename(sink, NameStr(change->new_name));\n", ""),
    "DDL: rolled-back savepoint": ("server/catalog/sink_ddl.cpp", "if (event != SUBXACT_EVENT_ABORT_SUB)\n    return;", "if (event >= 0)\n    return;"),
    "delete: frees the dedup key": ("server/enqueue/update_trigger.cpp", "if (!row_isnull(&row, EV_DEDUP_KEY))\n    dedup", "if (false)\n    dedup"),
    "update: read again": ("server/enqueue/update_trigger.cpp", "    queue_rescan(DatumGetInt64(row_get(&row, EV_POSITION)));\n  return PointerGetDatum(NULL);", "    (void)0;\n  return PointerGetDatum(NULL);"),
    "replay: dead letters": ("server/operate/replay.cpp", '"AND NOT EXISTS (SELECT FROM outbox.events_failed', '"AND true OR NOT EXISTS (SELECT FROM outbox.events_failed'),
}


def build(folder: Path) -> None:
    for target in ([], ["install"]):
        done = subprocess.run(["make", f"-j{os.cpu_count()}", *target], cwd=folder, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout[-1000:] + done.stderr[-2000:])


def examine(examples: str) -> tuple[str, str]:
    """(what the model said, after how many examples)"""
    env = os.environ | {"EXAMPLES": examples, "SEED": SEED, "SHRINK": "0", "SUITE": "model-guards"}
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-s", "model"], cwd=ROOT / "test", env=env, capture_output=True, text=True)
    error = re.search(r"^E +(?:\| )?(AssertionError: .*|psycopg.*|KeyError.*)", done.stdout, re.MULTILINE)
    count = re.search(r"^(\d+ examples, \d+ steps)", done.stdout, re.MULTILINE)
    said = "" if done.returncode == 0 else error[1][:90] if error else done.stdout[-300:]
    return said, count[1] if count else ""


def main() -> int:
    examples = sys.argv[1] if len(sys.argv) > 1 else "150"
    missed = []
    shutil.copytree(ROOT, COPY, dirs_exist_ok=True, ignore=lambda folder, names: ["build", ".git", "test"] if folder == str(ROOT) else [])
    try:
        for name in sys.argv[2:] or GUARDS:
            file, guard, without = GUARDS[name]
            path = COPY / "src" / file
            text = path.read_text()
            if text.count(guard) != 1:
                sys.exit(f"{name}: {file} has changed; it contains the check {text.count(guard)} times")
            path.write_text(text.replace(guard, without))
            try:
                build(COPY)
                began = time.monotonic()
                said, count = examine(examples)
                took = time.monotonic() - began
            finally:
                path.write_text(text)
            print(f"{name:30} {took:6.1f} s  {count:26} {said or 'MISSED'}", flush=True)
            if not said:
                missed.append(name)
    finally:
        build(ROOT)
    print(f"{len(sys.argv[2:] or GUARDS) - len(missed)} checks found, {len(missed)} missed")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
