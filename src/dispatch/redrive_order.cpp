/*
 * redrive_order.cpp: redriven events are rare, so the table of keys in flight is built only when a round meets one,
 * and dropped with the round.
 * A redriven event waits in the worker, not in the delivery library, until later in-flight events of its key have
 * ended: only then is it known whether it is still in order.
 */
#include "dispatch/redrive_order.h"

#include <algorithm>
#include <cassert>

namespace dispatch {

void RedriveOrder::begin_round() noexcept {
  known_ = false;
  last_.clear();
}

bool RedriveOrder::know(const InFlight &in_flight) noexcept {
  try {
    for (const InFlightEvent *event = known_ ? nullptr : in_flight.next(nullptr); event;
         event = in_flight.next(event))
      if (event->key_hash != 0) {
        int64_t &last = last_[{event->sink->id, event->key_hash}];
        last = std::max(last, event->position);
      }
    spare_.make(last_);
  } catch (...) {
    return false;
  }
  known_ = true;
  return true;
}

void RedriveOrder::make_room() {
  if (known_)
    spare_.make(last_);
}

void RedriveOrder::claimed(const KeyId &key, int64_t position) noexcept {
  if (!known_ || key.key_hash == 0)
    return;
  if (const auto found = last_.find(key); found != last_.end())
    found->second = std::max(found->second, position);
  else
    spare_.insert(last_, key, position);
}

bool RedriveOrder::later_in_flight(const KeyId &key, int64_t position) const noexcept {
  assert(known_);
  const auto found = last_.find(key);
  return found != last_.end() && found->second > position;
}

}  // namespace dispatch
