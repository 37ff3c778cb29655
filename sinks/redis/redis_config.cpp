/* redis_config.cpp: what a sink's options mean for an event. */
#include "redis_config.h"

namespace outbox::redis {

void RedisConfig::check_event(const ob_event &event) const {
  if (size_t size = maker.check(event); size > options.max_message_bytes)
    throw BadInput(OB_TOO_LARGE, MAX_MESSAGE_BYTES, "event is too large for an entry of Redis",
                   "Its payload has " + std::to_string(size) + " bytes, and at most " +
                       std::to_string(options.max_message_bytes) + " are allowed.",
                   "Raise option \"max_message_bytes\" of the sink and, above 512 MB, proto-max-bulk-len of the "
                   "server, or send a reference to the data.");
}

Preview RedisConfig::preview(const ob_event &event, int64_t) const {
  Entry entry;
  maker.make(event, entry);
  return preview_of(entry);
}

}  // namespace outbox::redis
