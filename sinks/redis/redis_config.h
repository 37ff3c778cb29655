/* redis_config.h: the parsed options of a Redis sink. */
#pragma once

#include "delivery/engine/sink.h"
#include "entry.h"
#include "redis_options.h"

namespace outbox::redis {

class RedisConfig final : public SinkConfig {
public:
  RedisConfig(const Options &server, const Options *mapping, Owner owner); /* throws BadInput */

  void check_event(const ob_event &event) const override;
  void check_new_event(const ob_event &event) const override { maker.check_new(event); }
  size_t max_payload() const override { return maker.max_payload(max_message_bytes); }
  Preview preview(const ob_event &event, int64_t now) const override;

  const EntryMaker maker;
  const Connecting connecting;
  uint32_t max_in_flight = 2000;
  size_t max_message_bytes = 16'777'216;
  uint32_t wait_replicas = 0;
  std::chrono::milliseconds wait_timeout{1000};
};

}  // namespace outbox::redis
