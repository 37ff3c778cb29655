/* handover.h: the messages that the two threads of a NATS sink hand over. */
#pragma once

#include <string>

#include "delivery/engine/handover.h"

namespace outbox::nats {

struct Message {
  uint64_t ticket, key_hash;
  int64_t position;
  std::string subject;
  std::string data;             /* headers and body, as they are sent */
  size_t headers_size;          /* of data */
  int64_t first_tried_after_us; /* Unix time: created_at of its event; INT64_MIN: it was tried before */

  size_t size() const { return sizeof(Message) + subject.size() + data.size(); }
};

using Handover = outbox::Handover<Message>;

}  // namespace outbox::nats
