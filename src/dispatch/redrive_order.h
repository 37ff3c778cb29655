/*
 * redrive_order.h: whether a redriven event may go. It goes before what is later in its key and not yet sent. Later
 * events of its key that are in flight when it comes back have to end first: if one of them was delivered, the
 * recording has marked the redriven one or made it a dead letter again; if none was, it leads its key.
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

  /* Is a later event of the key in flight? The first question of a round looks at all events in flight. False: out of
   * memory. */
  bool later_in_flight(const InFlight &in_flight, const KeyId &key, int64_t position, bool *later) noexcept;

private:
  bool note(const KeyId &key, int64_t position) noexcept;
  bool note_all(const InFlight &in_flight) noexcept;

  bool known_ = false;                                 /* last_ is filled */
  std::unordered_map<KeyId, int64_t, KeyIdHash> last_; /* the last position of a key that is in flight */
};

}  // namespace dispatch
