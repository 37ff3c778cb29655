/* record_maker.cpp: a payload that is NULL is a tombstone where a message may have no body, and a mistake elsewhere.
 */
#include "delivery/formats/record_maker.h"

namespace outbox {

void RecordMaker::check_new(const ob_event &event) const {
  if (!event.payload.data && !sends_null_)
    throw BadInput(OB_BAD_VALUE, "payload", "payload is NULL, and the sink sends no message without a body", {},
                   "Give the event a payload, such as {}, or set option \"tombstone_on_empty_payload\" of the sink: "
                   "'true' sends a message without a body, 'false' sends null where the option \"value_format\" "
                   "makes JSON.");
  format_->check_new(event);
}

size_t RecordMaker::max_payload(size_t value) const {
  const size_t times = format_->shrinks();
  return times == 0 || value > SIZE_MAX / times ? SIZE_MAX : value * times;
}

}  // namespace outbox
