/* nats_config.cpp: what a sink's options mean for an event. */
#include "nats_config.h"

namespace outbox::nats {

void NatsConfig::check_event(const ob_event &event) const {
  if (size_t size = maker.check(event); size > options.max_message_bytes)
    throw BadInput(OB_TOO_LARGE, MAX_MESSAGE_BYTES, "event is too large for a NATS message",
                   "With its headers it has " + std::to_string(size) + " bytes, and at most " +
                       std::to_string(options.max_message_bytes) + " are allowed.",
                   "Raise option \"max_message_bytes\" of the sink and max_payload of the server, or send a "
                   "reference to the data.");
}

Preview NatsConfig::preview(const ob_event &event, int64_t) const {
  Content content;
  maker.make(event, content);
  return preview_of(content);
}

}  // namespace outbox::nats
