/* redis_config.h: the parsed options of a Redis sink. */
#pragma once

#include "delivery/engine/sink.h"
#include "entry.h"

namespace outbox::redis {

class RedisConfig final : public SinkConfig {
public:
  RedisConfig(const Options &server, const Options *mapping, Owner owner) /* throws BadInput */
      : options(ConnectOptions::parse<RedisOptions>(server, mapping, owner)), maker(options) {}

  void check_event(const ob_event &event) const override;
  void check_new_event(const ob_event &event) const override { maker.check_new(event); }
  size_t max_payload() const override { return maker.max_payload(options.max_message_bytes); }
  Preview preview(const ob_event &event, int64_t now) const override;

  const RedisOptions options;
  const EntryMaker maker;
};

}  // namespace outbox::redis
