#!/usr/bin/env python3
"""Takes guards out of src/dispatch, one at a time, and shows the unit test and the seed of the simulator that find that:

  test/simulate/guards.py [SECONDS] [NAME...]
  test/simulate/guards.py texts                  only whether each guard still stands in the source

Each guard is a piece of a file and what stands there without it. A guard that no unit test finds, and no seed in
SECONDS (30) of CPU, is told as missed: then it has no test, or is not needed."""

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "test"))
from guards import Guards, taken_out  # noqa: E402
from outbox_rig.planted import changed  # noqa: E402

COPY = ROOT / "build" / "guards"
SEED = 1

# name: (file of src/dispatch, the guard, without it)
GUARDS: Guards = {
    "drain up to locked rows": ("draining.cpp", "std::min({decisions.locked_rows.first_of_key(key.sink, key.key_hash), stops.dead,", "std::min({stops.dead,"),
    "drain up to a redriven row": ("draining.cpp", "stops.dead, stops.redriven,", "stops.dead,"),
    "dead letters that are not yet known": ("round/claim_round.cpp", "    hold_behind_dead_letters();", "    (void)0;"),
    "troubled rows that are not yet known": ("round/claim_round.cpp", "    hold_behind_troubled();", "    (void)0;"),
    "troubled rows of a key that drains": ("round/claim_scans.cpp", "  learn_key(sink, key_hash);\n", ""),
    "rows that are redriven while dead letters are read": ("round/claim_keys.cpp", "  d_.dead_letter_read.end();\n  for (RoundSink *sink : d_.sinks.all())\n    sink->cursor->troubled.restart();\n", "  d_.dead_letter_read.end();\n"),
    "troubled rows that a start skips": ("round/claim_scans.cpp", "        sink->cursor->troubled.restart();", "        (void)0;"),
    "troubled rows, taken back": ("sink_cursor.cpp", "  troubled.roll_back_round();\n", ""),
    "deliveries beside dead letters that are not yet known": ("dispatch.h", " || !dead_letter_read.all_known()", ""),
    "drain up to a failure being recorded": ("draining.cpp", "decisions.recording.first_failure(key), cursor.position() + 1", "cursor.position() + 1"),
    "failed and unrecorded blocks again": ("draining.cpp", "if (waits_for_its_record(event, key))", "if (false && waits_for_its_record(event, key))"),
    "late commits": ("late_commits.cpp", "if (!is_running(snapshot, xid))", "if (false && !is_running(snapshot, xid))"),
    "youngest transactions": ("late_commits.cpp", "xid = snapshot.xmax; xid < snapshot.next", "xid = snapshot.next; xid < snapshot.next"),
    "late commits, taken back": ("dispatch.cpp", "  late_commits.roll_back_round();\n", ""),
    "wait for later events": ("classify_row.cpp", "  if (row.redriven && row.key_hash != 0 &&\n", "  if (false &&\n"),
    "later rows of a draining key": ("classify_row.cpp", ": scan != RowScan::DRAINING);", ": false);"),
    "rows that have yet to drain": ("blocked_keys.h", "return drained + 1 < position;", "return drained < 0 && position < 0;"),
    "a mark that is removed": ("draining.cpp", "may_come_back = decisions.round.unmarked;", "may_come_back = false;"),
    "a row before the dead letter after the drain": ("draining.cpp", "    decisions.blocked_keys.drained_to(key.sink, key.key_hash, stops.dead);\n", ""),
    "a mark that is removed, taken back": ("dispatch.cpp", "    if (mark.removes)\n", "    if (false)\n"),
    "find in flight": ("classify_row.cpp", "= decisions.in_flight.find(row.position)) {", "= false ? decisions.in_flight.find(row.position) : nullptr) {"),
    "given to": ("classify_row.cpp", "      event->given_to = sink.id();", "      (void)event;"),
    "a key that changed in flight": ("classify_row.cpp", "(sink.rules.ordered && event->key_hash != row.key_hash) ||", "false ||"),
    "a row is marked once in a round": ("classify_row.cpp", "scan == RowScan::RESCAN && decisions.marks.has(row.position, sink.id(), row.key_hash)", "false"),
    "a mark of its former sink": ("marks.cpp", "mark.position == position && mark.sink == sink && mark.key_hash == key_hash;", "mark.position == position;"),
    "a failure of another key": ("recording.cpp", "event->outcome != Outcome::SENT && event->key_hash != key_hash;", "false && event->outcome != Outcome::SENT && event->key_hash != key_hash;"),
    "a redriven row without room is marked": ("classify_row.cpp", "return waits_behind ? block_row(", "return false ? block_row("),
    "a marked redriven row blocks nothing": ("round/claim_keys.cpp", "|| row.facts.blocked_by != 0)\n    return;", ")\n    return;"),
    "due times of this round": ("due_cursor.h", "void begin_read() noexcept { state_.next = WALL_TIME_NEVER; }", "void begin_read() noexcept { state_.next = expected_ = WALL_TIME_NEVER; }"),
    "a failed row that is not due": ("classify_row.cpp", "if (sink.rules.ordered && row.failed) {", "if (false) {"),
    "a redriven row in the batch": ("classify_row.cpp", "  decisions.round.reordered = true;\n  return skip(", "  return skip("),
    "a redriven row without room, and the batch": ("classify_row.cpp", "  decisions.round.reordered = true;\n  return {", "  return {"),
    "a failure blocks its key": ("dispatch.cpp", "  if (blocks_its_key(outcome, completion.suspect, rules))", "  if (false && blocks_its_key(outcome, completion.suspect, rules))"),
    "the group of a mark": ("blocked_keys.cpp", "  return key.group;\n", "  return group;\n"),
    "keys of every hash are blocked": ("blocked_keys.cpp", "  if (key_hash == 0)\n    return 0;\n", "  if (key_hash % 4 == 0)\n    return 0;\n"),
    "deliveries are recorded in order": ("recording.cpp", "      batch[n++] = event;\n", "      if (event->position % 4 != 0 || in_flight.n_ended() < 4)\n        batch[n++] = event;\n"),
    "suspects are taken": ("dispatch.cpp", "    recording.suspects_taken(in_flight);", "    (void)0;"),
    "a replaced blocker is read again": ("dispatch.cpp", "  if (replaced != 0)\n    locked_rows.add(", "  if (false)\n    locked_rows.add("),
    "marks, taken back": ("dispatch.cpp", "  marks.roll_back_round();\n", ""),
    "draining, taken back": ("dispatch.cpp", "  blocked_keys.drain_all_again();\n", ""),
    "locked rows, taken back": ("dispatch.cpp", "  locked_rows.roll_back_round();\n", ""),
    "rescan, taken back": ("dispatch.cpp", "  rescan_cursor.roll_back_round();\n", ""),
    "cursors, taken back": ("dispatch.cpp", "  sinks.roll_back_round();\n", ""),
    "shards drain": ("shards.cpp", "in_flight[shard] > 0 ? ShardState::DRAINING : ShardState::NOT_OURS", "in_flight[shard] > 100000 ? ShardState::DRAINING : ShardState::NOT_OURS"),
    "later recordings wait": ("out_of_order.cpp", "  put_off_after_unrecorded(in_flight);\n", "  (void)in_flight;\n"),
    "recordings wait for locked rows": ("out_of_order.cpp", "    if (!row.locked)\n", "    if (false)\n"),
    "a redrive that is overtaken": ("out_of_order.cpp", ": row.redriven_in_order ? EarlierRowAction::DEAD_LETTER_AGAIN", ": row.redriven_in_order && false ? EarlierRowAction::DEAD_LETTER_AGAIN"),
    "unflushed recordings count": ("in_flight.cpp", "max_events - count_ - unflushed.events()", "max_events - count_"),
    "tickets have a generation": ("in_flight.cpp", "event->generation == ticket >> 32 && ", ""),
    "rows without room stay queued": ("rescan_cursor.cpp", "void RescanCursor::row_kept(uint64_t xact) noexcept {\n  state_.next_pass = std::min(state_.next_pass, xact);", "void RescanCursor::row_kept(uint64_t) noexcept {"),
    "a cursor goes back": ("sink_cursor.cpp", "  position_ = std::min(position_, position - 1);\n", ""),
    "returned events are marked first": ("round/claim_round.cpp", "  mark_returned();\n  OUTBOX_ROUND_POINT", "  OUTBOX_ROUND_POINT"),
    "keys drain before late rows": ("round/claim_round.cpp", "    more |= scan_draining(*sink);\n    scan_late(*sink);\n", "    scan_late(*sink);\n    more |= scan_draining(*sink);\n"),
    "one snapshot for all reads": ("round/claim_round.cpp", "  more |= scan_main();\n", "  port_.take_snapshot();\n  more |= scan_main();\n"),
    "late commits before the main scan": ("round/claim_round.cpp", "  find_late_commits();\n  skip_to_first_rows();\n", "  more |= scan_main();\n  find_late_commits();\n  skip_to_first_rows();\n"),
    "a start before unrouted rows": ("round/claim_scans.cpp", "  port_.read({.rows = RowsOf::FIRST_UNROUTED, .limit = 1}, start_before);\n", ""),
    "a start before marked rows with a time": ("round/claim_scans.cpp", "    port_.read({.rows = RowsOf::FIRST_MARKED_WITH_TIME, .limit = 1}, start_before);\n", "    (void)0;\n"),
    "a start before returned events": ("sink_cursor.cpp", "  at_start_ = was_at_start_ = false;", ""),
    "claimed events are flushed first": ("round/loop.cpp", "    port_.flush();\n", ""),
    "a failed claim gives back": ("round/loop.cpp", "    port_.claim_round().give_back();\n    rescan_wanted_ = true;\n", "    port_.claim_round().give_back();\n"),
    "held events go back behind a returned one": ("round/loop_submit.cpp", "    if (must_return(sink.batch_events[i])) {", "    if (false) {"),
    "no claim while events are held": ("round/loop.cpp", "!waits_for_standbys() && now >= port_.pause_end", "now >= port_.pause_end"),
    "low watermark: a row that is read": ("round/claim_row.cpp", "  sink.cursor->lower_watermark(row.facts.position);\n", ""),
    "low watermark: in flight": ("dispatch.cpp", "    round_sink_of(event)->cursor->lower_watermark(event->position);\n", ""),
    "low watermark: given to": ("dispatch.cpp", "    lower(event->given_to, event->position);\n", ""),
    "low watermark: locked rows": ("dispatch.cpp", "!sinks.troubled_known() ? 0 : locked_rows.first();", "!sinks.troubled_known() ? 0 : POSITION_NONE;"),
    "low watermark: blocked keys": ("dispatch.cpp", "raise_watermark(blocked_keys.lowest(sink->id()))", "raise_watermark(POSITION_NONE)"),
    "low watermark: one of many blocked keys": ("blocked_keys.cpp", "  low = std::min(low, position);\n", ""),
    "low watermark: a key that comes during a pass": ("blocked_keys.cpp", "  next_low = std::min(next_low, position);\n", ""),
    "low watermark: late commits": ("sink_cursor.cpp", "lowest_blocked, late.lowest(), first_foreign_", "lowest_blocked, first_foreign_"),
    "keys of a shard that was given up": ("blocked_keys.cpp", "    if (lists.n_counting[shard] > 0 && !known.has(shard)) {", "    if (false) {"),
    "rows before a dead letter that blocks": ("round/claim_keys.cpp", "DRAINING || key->blocker == row.facts.position))", "DRAINING))"),
    "a scan stops where there is no room": ("main_scan.cpp", "    leave(cursor, true);\n", "    (void)cursor;\n"),
}


def run(argv: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(argv, cwd=COPY, capture_output=True, text=True, errors="replace")


def build() -> None:
    done = run(["make", "-j2", "-f", "test/simulate/Makefile", "build/simulate/simulate", "build/simulate/unit_tests", "CXXFLAGS=-std=c++20 -O1 -w -Isrc -I. -MMD -MP"])
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])


def failure(argv: list[str], line: str) -> str:
    """What the line shows of it, or the assertion or the signal that ended the program; empty if it succeeds."""
    done = run(argv)
    if found := re.search(line + r"|Assertion `(.*)' failed", done.stdout + done.stderr):
        return found[1] or f"assertion {found[2]}"
    return f"ended with {done.returncode}" if done.returncode else ""


def unit_test() -> str:
    """The first that fails."""
    return failure(["build/simulate/unit_tests", "--gtest_brief=1"], r"FAILED  \] (\S+)")


def seed(seconds: str) -> str:
    """What the simulator finds within these seconds of CPU, and after how many."""
    began = time.monotonic()
    what = failure(["build/simulate/simulate", "--seed", str(SEED), "--cpu-seconds", seconds, "--quiet"], r"worlds: (seed \d+: .*)")
    return what and f"{what} ({time.monotonic() - began:.1f} s)"


def main() -> int:
    if wrong := changed(GUARDS, ROOT / "src/dispatch"):
        sys.exit("\n".join(wrong))
    if sys.argv[1:] == ["texts"]:
        return 0
    seconds = sys.argv[1] if len(sys.argv) > 1 else "30"
    names = sys.argv[2:] or list(GUARDS)
    n_tests = n_seeds = missed = 0
    for folder, *others in [("src/dispatch", "*.o", "*.d"), ("test/simulate",), ("test/unit",)]:
        shutil.copytree(ROOT / folder, COPY / folder, dirs_exist_ok=True, copy_function=shutil.copy, ignore=shutil.ignore_patterns(*others))
    build()
    if found := unit_test():
        sys.exit(f"without a change a unit test fails: {found}")
    for name in names:
        with taken_out(GUARDS, name, COPY / "src/dispatch"):
            build()
            by_test, by_seed = unit_test(), seed(seconds)
        print(f"{name}\n    unit test: {by_test or 'none'}\n    simulator: {by_seed or 'no seed'}{'' if by_test or by_seed else '; MISSED'}", flush=True)
        n_tests += bool(by_test)
        n_seeds += bool(by_seed)
        missed += not (by_test or by_seed)
    print(f"{len(names)} guards: {n_tests} found by a unit test, {n_seeds} by the simulator, {missed} missed")
    return missed > 0


if __name__ == "__main__":
    sys.exit(main())
