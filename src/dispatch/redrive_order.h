/*
 * redrive_order.h: decides whether a redriven event may be sent now. It goes before the later events of its key
 * that are not yet sent, but in-flight events of its key must end first. If one of them was delivered, the
 * recording has marked the redriven event or made it a dead letter again; if none was, the redriven event is first
 * in its key.
 */
#pragma once

#include "dispatch/in_flight.h"
#include "dispatch/memory.h"
#include "dispatch/types.h"

namespace dispatch {

class RedriveOrder {
public:
  void begin_round() noexcept;

  /* A redriven row was read: the first of a round notes the keys of all events in flight. */
  void know(const InFlight &in_flight) noexcept;
  /* Is a later event of the key in flight? After know(). */
  bool later_in_flight(const KeyId &key, int64_t position) const noexcept;

  /* An event was claimed in this round. */
  void claimed(const KeyId &key, int64_t position) noexcept;

private:
  bool known_ = false;                      /* last_ is complete for this round */
  HashMap<KeyId, int64_t, KeyIdHash> last_; /* the highest position in flight of each key */
};

}  // namespace dispatch
