/* nats_config.h: the parsed options of a NATS sink. */
#pragma once

#include "delivery/engine/sink.h"
#include "nats_message.h"
#include "nats_options.h"

namespace outbox::nats {

class NatsConfig final : public SinkConfig {
public:
  NatsConfig(const Options &server, const Options *mapping, Owner owner); /* throws BadInput */

  void check_event(const ob_event &event) const override;
  void check_new_event(const ob_event &event) const override { maker.check_new(event); }
  size_t max_payload() const override { return maker.max_payload(max_message_bytes); }
  Preview preview(const ob_event &event, int64_t now) const override;

  const MessageMaker maker;
  const Connecting connecting;
  uint32_t max_in_flight = 2000;
  size_t max_message_bytes = 1'048'576; /* the default of a server's max_payload */
};

}  // namespace outbox::nats
