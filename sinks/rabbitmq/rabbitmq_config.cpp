/* rabbitmq_config.cpp: what a sink's options mean for an event. */
#include "rabbitmq_config.h"

namespace outbox::rabbitmq {

void RabbitConfig::check_event(const ob_event &event) const {
  if (size_t size = maker.check(event); size > options.max_message_bytes)
    throw BadInput(OB_TOO_LARGE, MAX_MESSAGE_BYTES, "event is too large for a RabbitMQ message",
                   "Its body has " + std::to_string(size) + " bytes, and at most " +
                       std::to_string(options.max_message_bytes) + " are allowed.",
                   "Raise option \"max_message_bytes\" of the sink and max_message_size of the broker, or send a "
                   "reference to the data.");
}

Preview RabbitConfig::preview(const ob_event &event, int64_t) const {
  Content content;
  maker.make(event, content);
  return preview_of(content);
}

}  // namespace outbox::rabbitmq
