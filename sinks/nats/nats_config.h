/* nats_config.h: the parsed options of a NATS sink. */
#pragma once

#include "delivery/engine/sink.h"
#include "nats_message.h"

namespace outbox::nats {

class NatsConfig final : public SinkConfig {
public:
  NatsConfig(const Options &server, const Options *mapping, Owner owner) /* throws BadInput */
      : options(ConnectOptions::parse<NatsOptions>(server, mapping, owner)), maker(options) {}

  void check_event(const ob_event &event) const override;
  void check_new_event(const ob_event &event) const override { maker.check_new(event); }
  size_t max_payload() const override { return maker.max_payload(options.max_message_bytes); }
  Preview preview(const ob_event &event, int64_t now) const override;

  const NatsOptions options;
  const MessageMaker maker;
};

}  // namespace outbox::nats
