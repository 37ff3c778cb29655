/* handover.h: the messages that the two threads of a RabbitMQ sink hand over. */
#pragma once

#include <array>
#include <string>

#include "delivery/engine/handover.h"

namespace outbox::rabbitmq {

struct Message {
  uint64_t ticket, key_hash;
  int64_t position;
  std::array<char, 36> id;
  std::string exchange, routing_key;
  std::string properties; /* encoded */
  std::string body;

  size_t size() const {
    return sizeof(Message) + exchange.size() + routing_key.size() + properties.size() + body.size();
  }
};

using Handover = outbox::Handover<Message>;

}  // namespace outbox::rabbitmq
