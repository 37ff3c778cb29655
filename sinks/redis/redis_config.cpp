/* redis_config.cpp: what a sink's options mean for an event. */
#include "redis_config.h"

namespace outbox::redis {

RedisConfig::RedisConfig(const Options &server, const Options *mapping, Owner owner)
    : maker(server), connecting(parse_connecting(server, mapping, owner)) {
  read_option(server, MAX_IN_FLIGHT, parse_max_in_flight, max_in_flight);
  read_option(server, MAX_MESSAGE_BYTES, parse_max_message_bytes, max_message_bytes);
  read_option(server, WAIT_REPLICAS, parse_wait_replicas, wait_replicas);
  if (!find_option(server, WAIT_REPLICAS))
    refuse_without_meaning(server, WAIT_TIMEOUT, "The sink waits for no replicas: set wait_replicas.");
  read_option(server, WAIT_TIMEOUT, parse_wait_timeout, wait_timeout);
}

void RedisConfig::check_event(const ob_event &event) const {
  if (size_t size = maker.check(event); size > max_message_bytes)
    throw BadInput(OB_TOO_LARGE, MAX_MESSAGE_BYTES, "event is too large for an entry of Redis",
                   "Its payload has " + std::to_string(size) + " bytes, and at most " +
                       std::to_string(max_message_bytes) + " are allowed.",
                   "Raise option \"max_message_bytes\" of the sink and, above 512 MB, proto-max-bulk-len of the "
                   "server, or send a reference to the data.");
}

Preview RedisConfig::preview(const ob_event &event, int64_t) const {
  Entry entry;
  maker.make(event, entry);
  return preview_of(entry);
}

}  // namespace outbox::redis
