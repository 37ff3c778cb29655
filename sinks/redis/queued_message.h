/* queued_message.h: the messages that wait in the queue of a Redis sink, or were sent. */
#pragma once

#include <string>

#include "command.h"
#include "delivery/engine/send_queue.h"

namespace outbox::redis {

struct Message {
  uint64_t ticket, key_hash;
  int64_t position;
  std::string stream;
  Command command; /* XADD */

  size_t size() const { return sizeof(Message) + stream.size() + command.bytes().size(); }
};

using SendQueue = outbox::SendQueue<Message>;

}  // namespace outbox::redis
