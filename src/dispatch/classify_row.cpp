/*
 * classify_row.cpp: the order of the questions is part of the promise. A row that is in flight is never claimed
 * again, whatever its columns say by now; a row that is not due leads its key, if it has failed, before anybody asks
 * for room; and the key is asked last, so that nothing is marked for which the scan comes back anyway.
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

/* Is there room for one more event in this round, in its sink and in the worker? */
static const char *no_room(const Round &round, const RowSink &sink) {
  return sink.cursor->free_slots() <= 0                    ? "its sink takes no more"
         : round.free_events <= 0 || round.free_bytes <= 0 ? "the worker takes no more"
                                                           : nullptr;
}

/* A failing event leads its key; a merely scheduled one neither leads nor waits. Only rows that are not marked, and
 * have the sink's present name, are found when they are due. */
static RowDecision put_off(Dispatch &decisions, const Row &row, const RowSink &sink) {
  sink.cursor->due.expect(row.available_at);
  if (sink.ordered && row.attempts > 0) {
    if (!decisions.block_key(sink.id(), row.key_hash, row.position))
      return OUT_OF_MEMORY;
    if (const BlockedKey *key = decisions.blocked_keys.find_before(sink.id(), row.key_hash, row.position)) {
      /* It failed, and then an earlier one did. */
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

static RowDecision wait_behind(Dispatch &decisions, const Row &row, const RowSink &sink, const BlockedKey &key) {
  const int64_t blocker = key.blocker;

  if (row.blocked_by == key.group) {
    /* It may have come from another sink after the key had drained past its place. */
    decisions.blocked_keys.drain_again_from(sink.id(), row.key_hash, row.position);
    return skip("its key is blocked", blocker);
  }
  if (!decisions.marks.add(mark_of(row, sink, key.group)))
    return OUT_OF_MEMORY;
  return {RowVerdict::BLOCK, "its key is blocked", blocker};
}

/* Later events of the key are in flight: the row leads its key from now on, and is looked at again. */
static RowDecision wait_for_later_events(Dispatch &decisions, const Row &row, const RowSink &sink) {
  if (!decisions.block_key(sink.id(), row.key_hash, row.position) ||
      !decisions.locked_rows.add(row.position, sink.id(), row.key_hash)) /* an earlier one may take the lead */
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
    return put_off(decisions, row, sink);
  if (const char *reason = no_room(decisions.round, sink))
    return {RowVerdict::STOP, reason, 0};
  if (scan == RowScan::MAIN && decisions.locked_rows.full())
    return {RowVerdict::STOP, "the worker takes no more", 0};
  if (!sink.ordered)
    return {RowVerdict::CLAIM, nullptr, 0};
  const BlockedKey *key = decisions.blocked_keys.find(sink.id(), row.key_hash);
  if (key && (key->state == KeyState::BLOCKED ? row.position > key->blocker : scan != RowScan::DRAINING))
    return wait_behind(decisions, row, sink, *key);
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
