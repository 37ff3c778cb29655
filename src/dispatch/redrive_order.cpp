/*
 * redrive_order.cpp: redriven events are rare, so the table of keys in flight is built only when a round meets one,
 * and dropped with the round.
 * A redriven event waits in the worker, not in the delivery library, until later in-flight events of its key have
 * ended: only then is it known whether it is still in order.
 */
#include "dispatch/redrive_order.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace dispatch {

void RedriveOrder::begin_round() noexcept {
  known_ = false;
  last_.clear();
}

void RedriveOrder::know(const InFlight &in_flight) noexcept {
  if (std::exchange(known_, true))
    return;
  for (const InFlightEvent *event = in_flight.next(nullptr); event; event = in_flight.next(event))
    claimed({event->sink->id, event->key_hash}, event->position);
}

void RedriveOrder::claimed(const KeyId &key, int64_t position) noexcept {
  if (!known_ || key.key_hash == 0)
    return;
  int64_t &last = last_[key];
  last = std::max(last, position);
}

bool RedriveOrder::later_in_flight(const KeyId &key, int64_t position) const noexcept {
  assert(known_);
  const auto found = last_.find(key);
  return found != last_.end() && found->second > position;
}

}  // namespace dispatch
