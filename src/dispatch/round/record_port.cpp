/* record_port.cpp: a delivery is recorded under the key with which it was sent, also when its row has another by now.
 */
#include "dispatch/round/record_port.h"

namespace dispatch {

bool still_its_row(InFlightEvent *event, const RoundSink *sink, uint64_t key_hash) noexcept {
  const RoundSink *its_sink = round_sink_of(event);
  const bool still = sink == its_sink && !has_other_key(event, key_hash, its_sink->rules.ordered);

  if (sink && !still)
    event->given_to = sink->id();
  return still;
}

}  // namespace dispatch
