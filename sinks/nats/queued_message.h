/* queued_message.h: the messages that wait in the queue of a NATS sink, or were sent. */
#pragma once

#include <string>

#include "delivery/engine/send_queue.h"

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

using SendQueue = outbox::SendQueue<Message>;

}  // namespace outbox::nats
