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

bool block_by_unrecorded(Dispatch &decisions, const KeyId &key, bool *blocked) noexcept {
  int64_t first = POSITION_NONE;

  for (const InFlightEvent *event = decisions.in_flight.first_ended(); event; event = event->next)
    if (waits_for_its_record(event, key))
      first = std::min(first, event->position);
  *blocked = first != POSITION_NONE;
  return !*blocked || decisions.block_key(key.sink, key.key_hash, first);
}

int64_t drain_below(const Dispatch &decisions, const SinkCursor &cursor, const KeyId &key, int64_t dead) noexcept {
  return std::min({decisions.locked_rows.first_of_key(key.sink, key.key_hash), dead, cursor.position() + 1});
}

bool drain_read_ended(Dispatch &decisions, const SinkScan &scan, const KeyId &key, int64_t dead) noexcept {
  decisions.blocked_keys.drained_to(key.sink, key.key_hash, scan.last_position);
  const BlockedKey *entry = decisions.blocked_keys.find(key.sink, key.key_hash);
  if (!entry || entry->state == KeyState::BLOCKED || !scan.all_read())
    return true;
  const int64_t locked =
      decisions.locked_rows.first_of_key(key.sink, key.key_hash); /* the read may have added some */
  if (dead != POSITION_NONE) {
    const bool dead_is_next = scan.below == dead || (!scan.cursor->has_backlog() && locked > dead);
    return !dead_is_next || decisions.block_key(key.sink, key.key_hash, dead);
  }
  if (!scan.stopped && locked == POSITION_NONE)
    decisions.blocked_keys.forget(key.sink, key.key_hash); /* new rows of the key may be claimed as they come */
  return true;
}

}  // namespace dispatch
