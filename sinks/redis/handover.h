/* handover.h: the messages that the two threads of a Redis sink hand over. */
#pragma once

#include <string>

#include "command.h"
#include "delivery/engine/handover.h"

namespace outbox::redis {

struct Message {
  uint64_t ticket, key_hash;
  int64_t position;
  std::string stream;
  Command command; /* XADD */

  size_t size() const { return sizeof(Message) + stream.size() + command.bytes().size(); }
};

using Handover = outbox::Handover<Message>;

}  // namespace outbox::redis
