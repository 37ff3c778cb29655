/* rabbitmq_config.h: the parsed options of a RabbitMQ sink. */
#pragma once

#include "delivery/engine/sink.h"
#include "rabbitmq_message.h"

namespace outbox::rabbitmq {

class RabbitConfig final : public SinkConfig {
public:
  RabbitConfig(const Options &server, const Options *mapping, Owner owner) /* throws BadInput */
      : options(ConnectOptions::parse<RabbitOptions>(server, mapping, owner)), maker(options) {}

  void check_event(const ob_event &event) const override;
  void check_new_event(const ob_event &event) const override { maker.check_new(event); }
  size_t max_payload() const override { return maker.max_payload(options.max_message_bytes); }
  Preview preview(const ob_event &event, int64_t now) const override;

  const RabbitOptions options;
  const MessageMaker maker;
};

}  // namespace outbox::rabbitmq
