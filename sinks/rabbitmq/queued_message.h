/* queued_message.h: the messages that wait in the queue of a RabbitMQ sink, or were sent. */
#pragma once

#include <array>
#include <string>

#include "delivery/engine/send_queue.h"

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

using SendQueue = outbox::SendQueue<Message>;

}  // namespace outbox::rabbitmq
