/*
 * claim_scans.cpp: reads the rows that main_scan.h, sink_scan.h, draining.h and early_retry.h ask for, and tells them
 * of each.
 */
#include <algorithm>

#include "dispatch/round/claim_round.h"

namespace dispatch {

/* ---- late commits --------------------------------------------------------------------------------------------- */

/* One question per round finds the transactions that have ended since the last round and left rows at or below the
 * farthest cursor. Usually there are none. */
void ClaimRound::find_late_commits() {
  int64_t farthest = 0;

  for (const RoundSink *sink : d_.sinks.all())
    farthest = std::max(farthest, sink->cursor->position());
  const TransactionSnapshot transactions = port_.transactions();
  d_.late_commits.find_ended(transactions);
  if (!d_.late_commits.ended().empty() && farthest > 0)
    port_.find_late(d_.late_commits.ended(), farthest, [this](uint64_t xid, int64_t first_row) {
      for (RoundSink *sink : d_.sinks.all())
        sink->cursor->late_commit(xid, first_row);
    });
  d_.late_commits.note_running(transactions);
}

/* ---- one sink ------------------------------------------------------------------------------------------------- */

/* A blocker that a user moves to another key takes its group's number with it: the rows of both keys have that mark
 * then, and a read of marked rows may have passed earlier rows of the other key. */
bool ClaimRound::visit(const ReadRow &row, RoundSink &sink, SinkScan *scan, uint64_t draining_key) {
  const bool is_of_other_key = scan->scan == RowScan::DRAINING && row.facts.key_hash != draining_key;
  RowVerdict verdict = RowVerdict::SKIP;

  if (scan->ends_before(row.facts.position, row.facts.available_at, d_.round.now.wall))
    return false;
  if ((row.sink == &sink && !is_of_other_key) || !row.routed)
    verdict = classify(row, scan->scan);
  return scan->row_read(row.facts.position, row.facts.available_at, verdict, row.sink != nullptr);
}

void ClaimRound::scan_late(RoundSink &sink) {
  LateTransactions &late = sink.cursor->late;
  bool all = true; /* stops at an incomplete transaction, since the next one may have later events of the same keys */

  while (all && !late.empty() && sink.cursor->free_places() > 0) {
    const LateTransaction first = late.first();
    SinkScan scan = {RowScan::LATE, sink.cursor, READ_MAX, first.after, 0};
    port_.read({.rows = RowsOf::LATE, .xid = first.xid, .after = first.after, .upto = first.upto, .limit = READ_MAX},
               [&](const ReadRow &row) { return visit(row, sink, &scan, 0); });
    all = scan.all_read();
    late.first_read(scan.last_position, all);
  }
}

void ClaimRound::drain(RoundSink &sink, uint64_t key_hash) {
  const KeyId id = {sink.id(), key_hash};

  if (block_by_unrecorded(d_, id))
    return;
  learn_key(sink, key_hash);
  const BlockedKey *key = d_.blocked_keys.find(sink.id(), key_hash);
  if (key == nullptr || key->state == KeyState::BLOCKED)
    return;
  const int64_t group = key->group, drained = key->drained;
  const DrainStops stops = sink.rules.dead_letters_block ? dead_letter_stops(sink, key_hash) : DrainStops();
  const int limit = std::min(sink.cursor->free_places() + 1, READ_MAX);
  SinkScan scan = {RowScan::DRAINING, sink.cursor, limit, drained, drain_below(d_, *sink.cursor, id, stops)};
  port_.read({.rows = RowsOf::MARKED, .group = group, .after = drained, .limit = limit},
             [&](const ReadRow &row) { return visit(row, sink, &scan, key_hash); });
  drain_read_ended(d_, scan, id, stops);
}

bool ClaimRound::scan_draining(RoundSink &sink) {
  uint64_t hashes[RoundMemory::DRAINING_KEYS];
  const size_t n = d_.blocked_keys.next_draining(sink.id(), {hashes, limits_.draining_keys});

  for (size_t i = 0; i < n && sink.cursor->free_places() > 0; i++)
    drain(sink, hashes[i]);
  return n == limits_.draining_keys && sink.cursor->free_places() > 0;
}

bool ClaimRound::scan_due(RoundSink &sink) {
  DueCursor &due = sink.cursor->due;
  const int limit = read_limit(sink.cursor->free_places());
  SinkScan scan = {RowScan::DUE, sink.cursor, limit, 0, 0};

  if (due.next() > d_.round.now.wall || sink.cursor->free_places() <= 0)
    return false;
  const Read read = {
      .rows = RowsOf::DUE, .sink = &sink, .after_time = due.after(), .after = due.after_position(), .limit = limit};
  due.begin_read();
  port_.read(read, [&](const ReadRow &row) { return visit(row, sink, &scan, 0); });
  if (scan.stopped || scan.all_read())
    return false;
  due.full();
  return true;
}

/* Does the sink have deferred events that are not recorded yet? An early retry would miss them, since their rows do
 * not show the reason yet. */
static bool any_deferred_to_be_recorded(const InFlight &in_flight, const RoundSink &sink) {
  for (const InFlightEvent *event : in_flight.ended())
    if (event->sink == &sink.events && event->outcome == Outcome::DEFERRED && !is_recorded(event))
      return true;
  return false;
}

bool ClaimRound::scan_early_retry(RoundSink &sink) {
  EarlyRetry &pass = sink.cursor->early_retry;
  const int limit = read_limit(sink.cursor->free_places());
  bool stopped = false;
  int n_rows = 0;

  if (!pass.going() || sink.cursor->free_places() <= 0)
    return false;
  const Read read = {.rows = RowsOf::WAITING,
                     .sink = &sink,
                     .after_time = pass.after(),
                     .after = pass.after_position(),
                     .limit = limit};
  port_.read(read, [&](const ReadRow &row) {
    const WallTime due = row.facts.available_at;
    n_rows++;
    if (pass.frees({due, row.tried_at, row.error}, d_.round.now.wall)) {
      ReadRow now_due = row;
      now_due.facts.available_at = WALL_TIME_BEGIN;
      /* A row that the main scan has yet to see ends the read: earlier rows of its key may stand below it. */
      const RowVerdict verdict =
          row.facts.position > sink.cursor->position() ? RowVerdict::STOP : classify(now_due, RowScan::DUE);
      if (verdict == RowVerdict::CLAIM)
        d_.in_flight.find(row.facts.position)->early = true;
      if (verdict == RowVerdict::STOP) {
        stopped = true;
        sink.cursor->set_has_backlog(true);
        return false;
      }
    }
    pass.passed(due, row.facts.position);
    return true;
  });
  if (stopped)
    return false;
  pass.end_read(n_rows == limit || any_deferred_to_be_recorded(d_.in_flight, sink));
  return pass.going();
}

/* ---- the start ------------------------------------------------------------------------------------------------ */

/* A sink that starts from the beginning, as all do in a new worker, skips the rows that come before its own: a
 * million rows of a paused sink take 0.4 s to read. Rows with a time are found by the due scan, which starts anew as
 * well and has not begun; those of them that have a mark only by the main scan, if their group has rows of another
 * key. A row that commits later in the gap is a late commit. All such sinks start together, so that one read serves
 * them. Failing rows in the gap are read in slices, also where shards are not fresh: of the sink's keys, those were
 * not known while it was unordered, and users may have changed rows while it was paused.
 */
void ClaimRound::skip_to_first_rows() {
  int64_t first = POSITION_NONE, start = POSITION_NONE;
  bool any = false;
  const auto start_before = [&start](const ReadRow &row) {
    start = std::min(start, row.facts.position - 1);
    return false;
  };

  for (RoundSink *sink : d_.sinks.all())
    if (sink->cursor->is_at_start() && sink->cursor->may_read()) {
      any = true;
      port_.read({.rows = RowsOf::FIRST_OF_SINK, .sink = sink, .limit = 1}, start_before);
    }
  if (!any)
    return;
  port_.read({.rows = RowsOf::FIRST_UNROUTED, .limit = 1}, start_before);
  if (start == POSITION_NONE)
    port_.read({.rows = RowsOf::LAST, .limit = 1}, [&start](const ReadRow &row) {
      start = row.facts.position;
      return false;
    });
  port_.read({.rows = RowsOf::MAIN, .after = 0, .limit = 1}, [&first](const ReadRow &row) {
    first = row.facts.position;
    return false;
  });
  if (start == POSITION_NONE || start - limits_.skipped_min < first)
    start = 0; /* there is nothing to gain */
  else
    port_.read({.rows = RowsOf::FIRST_MARKED_WITH_TIME, .limit = 1}, start_before);
  for (RoundSink *sink : d_.sinks.all())
    if (sink->cursor->is_at_start() && sink->cursor->may_read()) {
      sink->cursor->start_after(start);
      if (start > 0)
        sink->cursor->troubled.restart();
    }
}

/* ---- all sinks ------------------------------------------------------------------------------------------------ */

bool ClaimRound::scan_main() {
  MainRead read;

  while (d_.main_scan.begin_read(d_.round, &read)) {
    port_.read({.rows = RowsOf::MAIN, .after = read.after, .limit = read.limit}, [this](const ReadRow &row) {
      const RowVerdict verdict = classify(row, RowScan::MAIN);
      return d_.main_scan.row_read(row.facts.position, verdict, row.sink ? row.sink->cursor : nullptr);
    });
    d_.main_scan.end_read();
  }
  return d_.main_scan.more();
}

}  // namespace dispatch
