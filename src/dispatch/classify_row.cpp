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

static constexpr RowDecision OUT_OF_MEMORY = {RowVerdict::OUT_OF_MEMORY, nullptr, 0};

static Mark mark_of(const Row &row, const RowSink &sink, int64_t group) {
  return {row.position, row.handle, group, sink.id(), row.key_hash};
}

/* Why the round cannot take one more event; NULL if it can. */
static const char *no_room(const Round &round, const RowSink &sink) {
  return sink.cursor->free_slots() <= 0                    ? "its sink takes no more"
         : round.free_events <= 0 || round.free_bytes <= 0 ? "the worker takes no more"
                                                           : nullptr;
}

/* A failed event blocks its key until it is due; a scheduled one neither blocks nor waits. The search for due rows
 * finds only unmarked rows with the sink's present name, so other rows are marked with group 0, which repairs both.
 */
static RowDecision handle_not_due(Dispatch &decisions, const Row &row, const RowSink &sink) {
  sink.cursor->due.expect(row.available_at);
  if (sink.ordered && row.attempts > 0) {
    if (!decisions.block_key(sink.id(), row.key_hash, row.position))
      return OUT_OF_MEMORY;
    if (const BlockedKey *key = decisions.blocked_keys.find_before(sink.id(), row.key_hash, row.position)) {
      /* an earlier event of the key has failed since */
      return row.blocked_by == key->group || decisions.marks.add(mark_of(row, sink, key->group))
                 ? skip("it is not due")
                 : OUT_OF_MEMORY;
    }
  } else {
    decisions.blocked_keys.release(sink.id(), row.key_hash, row.position);
  }
  if ((row.blocked_by != 0 || row.former_name) && !decisions.marks.add(mark_of(row, sink, 0)))
    return OUT_OF_MEMORY;
  return skip("it is not due");
}

static RowDecision block_row(Dispatch &decisions, const Row &row, const RowSink &sink, const BlockedKey &key) {
  const int64_t blocker = key.blocker;

  if (row.blocked_by == key.group) {
    /* The row may have been moved here from another sink, to a position that the key has already drained. */
    decisions.blocked_keys.drain_again_from(sink.id(), row.key_hash, row.position);
    return skip("its key is blocked", blocker);
  }
  if (!decisions.marks.add(mark_of(row, sink, key.group)))
    return OUT_OF_MEMORY;
  return {RowVerdict::BLOCK, "its key is blocked", blocker};
}

/* Later events of the key are in flight: the redriven row blocks its key until they have ended, and is then read
 * again. */
static RowDecision wait_for_later_events(Dispatch &decisions, const Row &row, const RowSink &sink) {
  if (!decisions.block_key(sink.id(), row.key_hash, row.position) ||
      !decisions.locked_rows.add(row.position, sink.id(), row.key_hash)) /* an earlier event may be the blocker */
    return OUT_OF_MEMORY;
  decisions.round.reordered = true;
  return skip("it was redriven, and later events of its key are in flight");
}

RowDecision classify_row(Dispatch &decisions, const Row &row, const RowSink &sink, RowScan scan) noexcept {
  if (scan == RowScan::MAIN && !sink.cursor->reading())
    return skip("its sink reads no farther");
  if (scan == RowScan::MAIN && row.position <= sink.cursor->position())
    return skip("it was looked at before");
  if (scan != RowScan::MAIN && row.position > sink.cursor->position())
    return skip("its position comes later");
  if (InFlightEvent *event = decisions.in_flight.find(row.position)) {
    if (event->sink != sink.in_flight || event->state == EventState::GONE)
      event->given_to = sink.id();
    return skip("it is in flight");
  }
  if (row.available_at > decisions.round.now.wall)
    return handle_not_due(decisions, row, sink);
  if (const char *reason = no_room(decisions.round, sink)) {
    /* Until there is room for it, no later event of its key may drain. */
    if (row.redriven && sink.ordered && scan == RowScan::RESCAN) {
      if (!decisions.block_key(sink.id(), row.key_hash, row.position))
        return OUT_OF_MEMORY;
      decisions.round.reordered = true;
    }
    return {RowVerdict::STOP, reason, 0};
  }
  if (scan == RowScan::MAIN && decisions.locked_rows.full())
    return {RowVerdict::STOP, "the worker takes no more", 0};
  if (!sink.ordered)
    return {RowVerdict::CLAIM, nullptr, 0};
  const BlockedKey *key = decisions.blocked_keys.find(sink.id(), row.key_hash);
  if (key && (key->state == KeyState::BLOCKED ? row.position > key->blocker : scan != RowScan::DRAINING))
    return block_row(decisions, row, sink, *key);
  if (row.redriven && row.key_hash != 0) {
    bool later;
    if (!decisions.redrive_order.later_in_flight(decisions.in_flight, {sink.id(), row.key_hash}, row.position,
                                                 &later))
      return OUT_OF_MEMORY;
    if (later)
      return wait_for_later_events(decisions, row, sink);
  }
  return {RowVerdict::CLAIM, nullptr, 0};
}

}  // namespace dispatch
