/*
 * draining.cpp: rows of a key may lie unmarked before its marked ones, after the worker or the sink began anew. The
 * main scan must see those first, so a key drains up to its sink's cursor.
 */
#include "dispatch/draining.h"

namespace dispatch {

/* A suspect blocks its key until it is known whether its sink is to blame. */
static bool waits_for_its_record(const InFlightEvent *event, const KeyId &key) {
  const bool failed = event->outcome == Outcome::RETRY || event->outcome == Outcome::DEFERRED || event->suspect;

  return event->key_hash == key.key_hash && event->sink->id == key.sink && failed && !is_recorded(event);
}

bool block_by_unrecorded(Dispatch &decisions, const KeyId &key) noexcept {
  int64_t first = POSITION_NONE;

  for (const InFlightEvent *event : decisions.in_flight.ended())
    if (waits_for_its_record(event, key))
      first = std::min(first, event->position);
  if (first == POSITION_NONE)
    return false;
  decisions.block_key(key.sink, key.key_hash, first);
  return true;
}

/* A failure that the running transaction records is in flight until the commit, so a read would pass its row, which
 * may be marked by now: nothing would come back to it. */
int64_t drain_below(Dispatch &decisions, const SinkCursor &cursor, const KeyId &key, DrainStops stops) noexcept {
  return std::min({decisions.locked_rows.first_of_key(key.sink, key.key_hash), stops.dead, stops.redriven,
                   decisions.recording.first_failure(key), cursor.position() + 1});
}

/* The drain is over when nothing is left before its end, and nothing may come back: then the key is blocked by its
 * dead letter, or is free. A row that a user moves before the dead letter from now on, or an event that comes back
 * there, does not wait for it: all rows up to it have drained. Until the drain is over the key goes on draining. */
void drain_read_ended(Dispatch &decisions, const SinkScan &scan, const KeyId &key, DrainStops stops) noexcept {
  decisions.blocked_keys.drained_to(key.sink, key.key_hash, scan.last_position);
  const BlockedKey *entry = decisions.blocked_keys.find(key.sink, key.key_hash);
  if (!entry || entry->state == KeyState::BLOCKED || !scan.all_read())
    return;
  if (stops.redriven < stops.dead)
    return; /* the key drains on when the redriven row is marked */
  /* If the round fails, a row keeps its mark, by which only a draining key comes back to it. */
  const bool may_come_back = decisions.round.unmarked;
  if (may_come_back || decisions.recording.first_failure(key) != POSITION_NONE)
    return;
  const int64_t locked =
      decisions.locked_rows.first_of_key(key.sink, key.key_hash); /* the read may have added some */
  if (stops.dead != POSITION_NONE) {
    if (locked < stops.dead || (scan.below != stops.dead && scan.cursor->has_backlog()))
      return;
    decisions.block_key(key.sink, key.key_hash, stops.dead);
    decisions.blocked_keys.drained_to(key.sink, key.key_hash, stops.dead);
  } else if (!scan.stopped && locked == POSITION_NONE) {
    decisions.blocked_keys.forget(key.sink, key.key_hash); /* new rows of the key may be claimed as they come */
  }
}

}  // namespace dispatch
