#!/usr/bin/env python3
"""Takes checks out of the extension, one at a time, and shows what finds that, and after how long:

  test/guards.py model [EXAMPLES] [NAME...]    the model of the SQL surface, after how many of EXAMPLES (150)
  test/guards.py chaos [CYCLES] [NAME...]      the chaos test, in which of CYCLES (5)
  test/guards.py gate [SECONDS] [NAME...]      a file of tests that `make test` runs, within SECONDS (600)
  test/guards.py texts                         only whether each check still stands in the source

Each is built in a copy and installed; at the end the checkout's own build is installed again. A check whose absence is not found is told as missed: then
the test has no step for it, or the check is not needed. test/simulate/guards.py does the same for the simulation, without a server."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test/rig"))
from outbox_rig.planted import changed  # noqa: E402

COPY = ROOT / "build" / "without-guards"
SEED = "1"

Guards = dict[str, tuple[str, ...]]
# name: (file of src, the check, without it)
MODEL: Guards = {
    "redrive: overtaken": ("extension/45_redrive.sql", "letter.overtaken_by IS NOT NULL AND letter.ordered", "false AND letter.ordered"),
    "redrive: pending again": ("extension/45_redrive.sql", "ELSIF EXISTS (SELECT FROM outbox.events_pending", "ELSIF false AND EXISTS (SELECT FROM outbox.events_pending"),
    "ack: what it overtook": ("extension/manual/2_end.sql", "IF sink.ordered AND EXISTS (", "IF false AND EXISTS ("),
    "nack: later events": ("extension/manual/2_end.sql", "later_too := lease.single = 0 AND", "later_too := false AND"),
    "claim: dead letters block": ("extension/manual/3_claim.sql", "CASE WHEN sink.block THEN (", "CASE WHEN false THEN ("),
    "claim: paused": ("extension/manual/3_claim.sql", "IF sink.paused THEN", "IF false THEN"),
    "adopt: dead letters": ("extension/44_adopt.sql", "WHERE status = 'FAILED' AND origin <> here", "WHERE status = 'FAILED' AND false"),
    "rename: a pause follows": ("server/catalog/sink_ddl.cpp", "      stopped_sinks_rename(sink, NameStr(change->new_name));\n", ""),
    "DDL: rolled-back savepoint": ("server/catalog/sink_ddl.cpp", "if (event != SUBXACT_EVENT_ABORT_SUB)\n    return;", "if (event >= 0)\n    return;"),
    "delete: frees the dedup key": ("server/enqueue/update_trigger.cpp", "if (!row_isnull(&row, EV_DEDUP_KEY))\n    dedup", "if (false)\n    dedup"),
    "update: read again": ("server/enqueue/update_trigger.cpp", "    queue_rescan(DatumGetInt64(row_get(&row, EV_POSITION)));\n  return PointerGetDatum(NULL);", "    (void)0;\n  return PointerGetDatum(NULL);"),
    "replay: dead letters": ("server/operate/replay.cpp", '"AND NOT EXISTS (SELECT FROM outbox.events_failed', '"AND true OR NOT EXISTS (SELECT FROM outbox.events_failed'),
}

CHAOS: Guards = {
    "positions of a late route": ("server/enqueue/unrouted_events.cpp", "isnull[EV_POSITION] = used + 1 + i > position_last_of(position);", "isnull[EV_POSITION] = true;"),
    "RENAME: events": ("server/catalog/sink_rename.cpp", "    run(write, values);\n", "    (void)write;\n"),
    "RENAME: dead letters": ("server/catalog/sink_rename.cpp", "    rewrite_table(&read_failed, &write_failed, old_name, new_name, whose);\n", "    (void)write_failed;\n"),
    "a clock that is ahead": ("server/enqueue/enqueue.cpp", "static const int CLOCK_SKEW_MS = 5000;", "static const int CLOCK_SKEW_MS = 0;"),
    "what a trigger changes": ("server/base/own_change.cpp", "own_depth != NONE && trigger_depth() == own_depth + 1;", "own_depth != NONE && trigger_depth() > own_depth;"),
    "a routing that failed": ("server/claim/unrouted.cpp", "i < n; i++) {\n    WorkerSink *sink", "i < n && !failed; i++) {\n    WorkerSink *sink"),
    "a day that is detached": ("dispatch/sent_day.h", "void begin() noexcept { looked_at_ = INT_MIN; }", "void begin() noexcept {}"),
    "a recording that is refused": ("dispatch/recording.cpp", "  apart_ = true;\n  if (!sink_)", "  if (!sink_)"),
    "the same headers": ("../sinks/kafka/kafka_record.cpp", "  format_->write(event, record);\n", """  format_->write(event, record);
  std::string &at = record.text();
  at = std::to_string(std::chrono::system_clock::now().time_since_epoch().count());
  record.headers.push_back({{"at", 2}, as_text(at), false});
"""),
    "a cut text": ("delivery/base/text.h", "  while (max > 0 && (static_cast<unsigned char>(text[max]) & 0xC0) == 0x80)\n    max--;\n", ""),
    "410 of a URL with variables": ("delivery/http/http_answer.cpp", "if (answer.own_url) { /* gone", "if (false) { /* gone"),
    "a closed connection": ("delivery/http/http_transfer.cpp", """closed || history.answered || !tls_.asked_for_client_certificate() || peer_->client.is_given())
    return false;
  return history.hang_ups++ < most_hang_ups;""", """closed || !tls_.asked_for_client_certificate() || peer_->client.is_given())
    return false;
  return most_hang_ups > 0;"""),
}

# Defects of five kinds that `make test` must refuse, each with the file of tests that shall find it as the fourth.
GATE: Guards = {
    "a wrong header": ("delivery/formats/debezium.cpp", 'record.add_header("id",', 'record.add_header("ID",', "e2e/test_main_job.py"),
    "a key that is not blocked": ("dispatch/dispatch.cpp", "  if (blocks_its_key(outcome, completion.suspect, rules))", "  if (false && blocks_its_key(outcome, completion.suspect, rules))", "e2e/test_retry.py"),
    "a completion that is lost": ("dispatch/round/loop.cpp", "  if (event == nullptr)\n    return;\n  OUTBOX_LOOP_SIGNAL", "  if (event == nullptr || ticket % 7 == 3)\n    return;\n  OUTBOX_LOOP_SIGNAL", "e2e/test_fanout.py"),
    "a flush that is left out": ("server/storage/durable.cpp", "    XLogFlush(needed);\n", "    (void)0;\n", "fault/test_durable.py"),
    "a right that is not checked": ("server/catalog/route.cpp", "  if (outbox_server_aclcheck(sink->server_oid, role) != ACLCHECK_OK)", "  if (false && role)", "operate/test_hostile.py"),
}


@contextmanager
def taken_out(guards: Guards, name: str, folder: Path) -> Iterator[None]:
    """For the duration of a block, the guard's file in the folder is without the guard."""
    file, guard, without, *_ = guards[name]
    path = folder / file
    text = path.read_text()
    path.write_text(text.replace(guard, without))
    try:
        yield
    finally:
        path.write_text(text)


def build(folder: Path) -> None:
    for target in ([], ["install"]):
        done = subprocess.run(["make", f"-j{os.environ.get('JOBS') or os.cpu_count()}", *target], cwd=folder, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout[-1000:] + done.stderr[-2000:])


def tests(most: str, name: str) -> tuple[str, str]:
    """(what the first test that failed said, which it is)"""
    env = os.environ | {"SUITE": "gate-guards", "PYTHONPATH": str(ROOT / "test/rig")}
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow and not timing", f"--timeout={most}", GATE[name][3]], cwd=ROOT / "test", env=env, capture_output=True, text=True)
    (ROOT / "build/gate-guards.txt").write_text(done.stdout + done.stderr)
    if done.returncode > 1:
        sys.exit(f"the tests did not run: {(done.stdout + done.stderr)[-1000:]}")
    failed = re.search(r"^(?:FAILED|ERROR) (?:test/)?(\S+?)(?: - (.*))?$", done.stdout, re.MULTILINE)
    return ("", "") if done.returncode == 0 else (failed[2] or "failed", failed[1])


def cycles(most: str, name: str) -> tuple[str, str]:
    """(what the chaos test said, in which cycle)"""
    done = subprocess.run([sys.executable, "-u", "chaos/chaos.py", "--cycles", most, "--seed", SEED, "--name", "chaos-guards"], cwd=ROOT / "test", capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT / "test/rig")})
    (ROOT / "build/chaos-guards.txt").write_text(done.stdout + done.stderr)
    if done.returncode == 0:
        return "", ""
    failed = re.search(r"^cycle +(\d+) FAILED", done.stdout, re.MULTILINE)
    if not failed:
        sys.exit(f"the chaos test did not run: {(done.stdout + done.stderr)[-1000:]}")
    finding = re.search(r"^ *([A-Z][A-Z ']+: .*|[\w.]*(?:Error|errors)[\w.]*: .*)", done.stdout[failed.end():], re.MULTILINE)
    return finding[1][:90] if finding else done.stdout[failed.end():][:300], f"cycle {failed[1]}"


def examples(most: str, name: str) -> tuple[str, str]:
    """(what the model said, after how many examples)"""
    env = os.environ | {"EXAMPLES": most, "SEED": SEED, "SHRINK": "0", "SUITE": "model-guards"}
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-s", "model"], cwd=ROOT / "test", env=env, capture_output=True, text=True)
    error = re.search(r"^E +(?:\| )?(AssertionError: .*|psycopg.*|KeyError.*)", done.stdout, re.MULTILINE)
    count = re.search(r"^(\d+ examples, \d+ steps)", done.stdout, re.MULTILINE)
    if not count:
        sys.exit(f"the model did not run: {(done.stdout + done.stderr)[-1000:]}")
    return "" if done.returncode == 0 else error[1][:90] if error else done.stdout[-300:], count[1]


TESTS = {"model": (MODEL, examples, "150"), "chaos": (CHAOS, cycles, "5"), "gate": (GATE, tests, "600")}


def main() -> int:
    if wrong := [line for guards, *_ in TESTS.values() for line in changed(guards, ROOT / "src")]:
        sys.exit("\n".join(wrong))
    if sys.argv[1:] == ["texts"]:
        return 0
    guards, examine, most = TESTS[sys.argv[1]]
    most, names, missed = sys.argv[2] if len(sys.argv) > 2 else most, sys.argv[3:] or list(guards), []
    shutil.copytree(ROOT, COPY, dirs_exist_ok=True, ignore=lambda folder, names: ["build", ".git", "test"] if folder == str(ROOT) else [])
    try:
        for name in names:
            with taken_out(guards, name, COPY / "src"):
                build(COPY)
                began = time.monotonic()
                said, count = examine(most, name)
                took = time.monotonic() - began
            print(f"{name:30} {took:6.1f} s  {count:26} {said or 'MISSED'}", flush=True)
            if not said:
                missed.append(name)
    finally:
        build(ROOT)
    print(f"{len(names) - len(missed)} found, {len(missed)} missed")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
