/*
 * classify_row.cpp: the order of the checks is part of the promise. First: a row that is in flight is never claimed
 * again, whatever its columns contain by now. Before the free space is checked: a failed row that is not yet due
 * blocks its key. Last: the key's state, so that no row is marked that the scan will read again anyway.
 */
#include "dispatch/classify_row.h"

namespace dispatch {

static RowDecision skip(const char *reason, int64_t blocker = 0) {
  return {RowVerdict::SKIP, reason, blocker};
}

static Mark mark_of(const Row &row, const RoundSink &sink, int64_t group) {
  return {row.position, row.handle, group, sink.id(), row.key_hash};
}

/* Why the round cannot take one more event; NULL if it can. */
static const char *no_room(const Round &round, const RoundSink &sink) {
  return sink.cursor->free_places() <= 0                   ? "its sink takes no more"
         : round.free_events <= 0 || round.free_bytes <= 0 ? "the worker takes no more"
                                                           : nullptr;
}

/* A failed event blocks its key until it is due; a scheduled one neither blocks nor waits. The search for due rows
 * finds only unmarked rows, so others are marked with group 0, which removes their mark. */
static RowDecision handle_not_due(Dispatch &decisions, const Row &row, const RoundSink &sink) {
  sink.cursor->due.expect(row.available_at);
  if (sink.rules.ordered && row.failed) {
    decisions.block_key(sink.id(), row.key_hash, row.position);
    if (const BlockedKey *key = decisions.blocked_keys.find_before(sink.id(), row.key_hash, row.position)) {
      if (row.blocked_by != key->group) /* an earlier event of the key has failed since */
        decisions.marks.add(mark_of(row, sink, key->group));
      return skip("it is not due");
    }
  } else {
    decisions.blocked_keys.release(sink.id(), row.key_hash, row.position);
  }
  if (row.blocked_by != 0) {
    Mark mark = mark_of(row, sink, 0);
    mark.removes = true;
    decisions.marks.add(mark);
    decisions.round.unmarked = true;
  }
  return skip("it is not due");
}

/* A draining key can be blocked by a later event than those that have yet to drain: marked rows, and what comes after
 * one of these. */
static bool waits_while_blocked(const Row &row, const BlockedKey &key, RowScan scan) {
  const bool has_yet_to_drain =
      (scan == RowScan::RESCAN && row.blocked_by == key.group) || key.may_have_undrained_before(row.position);

  return row.position > key.blocker || (row.position != key.blocker && has_yet_to_drain);
}

static RowDecision block_row(Dispatch &decisions, const Row &row, const RoundSink &sink, const BlockedKey &key) {
  const int64_t blocker = key.blocker;

  if (row.blocked_by == key.group) {
    /* The row may have been moved here from another sink, to a position that the key has already drained. */
    decisions.blocked_keys.marked(sink.id(), row.key_hash, key.group, row.position);
    return skip("its key is blocked", blocker);
  }
  decisions.marks.add(mark_of(row, sink, key.group));
  return {RowVerdict::BLOCK, "its key is blocked", blocker};
}

/* The blocker could be sent, but rows before it have yet to drain. The key drains up to it, and it is then read
 * again. A mark would not do: if the round fails, the key drains all the same. */
static RowDecision let_others_drain(Dispatch &decisions, const Row &row, const RoundSink &sink) {
  decisions.locked_rows.add(row.position, sink.id(), row.key_hash);
  decisions.blocked_keys.release(sink.id(), row.key_hash, row.position);
  return skip("earlier events of its key have yet to drain");
}

/* Later events of the key are in flight: the redriven row blocks its key until they have ended, and is then read
 * again. */
static RowDecision wait_for_later_events(Dispatch &decisions, const Row &row, const RoundSink &sink) {
  decisions.block_key(sink.id(), row.key_hash, row.position);
  decisions.locked_rows.add(row.position, sink.id(), row.key_hash); /* an earlier event may be the blocker */
  decisions.round.reordered = true;
  return skip("it was redriven, and later events of its key are in flight");
}

/* Until there is room for the redriven row, no later event of its key may drain. A row of a draining key is marked
 * instead: as the blocker it would be sent before the marked rows that have yet to drain. */
static RowDecision wait_for_room(Dispatch &decisions, const Row &row, const RoundSink &sink, const char *reason) {
  decisions.block_key(sink.id(), row.key_hash, row.position);
  decisions.round.reordered = true;
  return {RowVerdict::STOP, reason, 0};
}

RowDecision classify_row(Dispatch &decisions, const Row &row, RoundSink &sink, RowScan scan) noexcept {
  if (scan == RowScan::MAIN && !sink.cursor->reading())
    return skip("its sink reads no farther");
  if (scan == RowScan::MAIN && row.position <= sink.cursor->position())
    return skip("it was looked at before");
  if (scan != RowScan::MAIN && row.position > sink.cursor->position())
    return skip("its position comes later");
  if (InFlightEvent *event = decisions.in_flight.find(row.position)) {
    /* A user has changed its sink or its key: it is read again once it has ended. Its present mark, if any, is that
     * of its former key, which drains without it. So is a row that this transaction has recorded, and that a user's
     * trigger has changed since. */
    if (event->sink != &sink.events || event->state == EventState::GONE ||
        (sink.rules.ordered && event->key_hash != row.key_hash) || (scan == RowScan::RESCAN && is_recorded(event)))
      event->given_to = sink.id();
    return skip("it is in flight");
  }
  /* Two scans of a round can come across a row, such as the early retry and a rescan. */
  if (scan == RowScan::RESCAN && decisions.marks.has(row.position, sink.id(), row.key_hash))
    return skip("this round has marked it");
  if (row.available_at > decisions.round.now.wall)
    return handle_not_due(decisions, row, sink);
  const BlockedKey *key = sink.rules.ordered ? decisions.blocked_keys.find(sink.id(), row.key_hash) : nullptr;
  const bool waits_behind =
      key && (key->state == KeyState::BLOCKED ? waits_while_blocked(row, *key, scan) : scan != RowScan::DRAINING);
  if (const char *reason = no_room(decisions.round, sink)) {
    if (!row.redriven || !sink.rules.ordered || scan != RowScan::RESCAN)
      return {RowVerdict::STOP, reason, 0};
    return waits_behind ? block_row(decisions, row, sink, *key) : wait_for_room(decisions, row, sink, reason);
  }
  if (scan == RowScan::MAIN && decisions.locked_rows.full())
    return {RowVerdict::STOP, "the worker takes no more", 0};
  if (!sink.rules.ordered)
    return {RowVerdict::CLAIM, nullptr, 0};
  if (waits_behind)
    return block_row(decisions, row, sink, *key);
  if (key && key->state == KeyState::BLOCKED && key->may_have_undrained_before(row.position))
    return let_others_drain(decisions, row, sink);
  if (row.redriven && row.key_hash != 0 &&
      decisions.redrive_order.later_in_flight({sink.id(), row.key_hash}, row.position))
    return wait_for_later_events(decisions, row, sink);
  return {RowVerdict::CLAIM, nullptr, 0};
}

}  // namespace dispatch
