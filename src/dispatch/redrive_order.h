/*
 * redrive_order.h: decides whether a redriven event may be sent now. It goes before the later events of its key
 * that are not yet sent, but in-flight events of its key must end first. If one of them was delivered, the
 * recording has marked the redriven event or made it a dead letter again; if none was, the redriven event is first
 * in its key.
 */
#pragma once

#include <unordered_map>

#include "dispatch/in_flight.h"
#include "dispatch/types.h"

namespace dispatch {

class RedriveOrder {
public:
  void begin_round() noexcept;

  /* An event was claimed in this round. False: out of memory. */
  bool claimed(const KeyId &key, int64_t position) noexcept { return !known_ || note(key, position); }

  /* Sets `*later`: whether a later event of the key is in flight. The first call of a round reads all events in
   * flight. False: out of memory. */
  bool later_in_flight(const InFlight &in_flight, const KeyId &key, int64_t position, bool *later) noexcept;

private:
  bool note(const KeyId &key, int64_t position) noexcept;
  bool note_all(const InFlight &in_flight) noexcept;

  bool known_ = false;                                 /* last_ is complete for this round */
  std::unordered_map<KeyId, int64_t, KeyIdHash> last_; /* the highest position in flight of each key */
};

}  // namespace dispatch
