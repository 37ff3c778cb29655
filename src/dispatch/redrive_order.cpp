/*
 * redrive_order.cpp: redriven events are rare, so the table of keys in flight is built only when a round meets one,
 * and dropped with the round.
 * A redriven event waits in the worker, not in the delivery library, until later in-flight events of its key have
 * ended: only then is it known whether it is still in order.
 */
#include "dispatch/redrive_order.h"

#include <algorithm>

namespace dispatch {

void RedriveOrder::begin_round() noexcept {
  known_ = false;
  last_.clear();
}

bool RedriveOrder::note(const KeyId &key, int64_t position) noexcept {
  if (key.key_hash == 0)
    return true;
  try {
    int64_t &last = last_[key];
    last = std::max(last, position);
  } catch (...) {
    return false;
  }
  return true;
}

bool RedriveOrder::note_all(const InFlight &in_flight) noexcept {
  for (const InFlightEvent *event = in_flight.next(nullptr); event; event = in_flight.next(event))
    if (!note({event->sink->id, event->key_hash}, event->position))
      return false;
  return true;
}

bool RedriveOrder::later_in_flight(const InFlight &in_flight, const KeyId &key, int64_t position,
                                   bool *later) noexcept {
  if (!known_ && !note_all(in_flight))
    return false;
  known_ = true;
  const auto found = last_.find(key);
  *later = found != last_.end() && found->second > position;
  return true;
}

}  // namespace dispatch
