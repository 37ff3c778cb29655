/*
 * delivery_identity.h: under which name a peer that drops duplicates (JetStream, FIFO queues and topics) knows a
 * delivery. The event's id would not do: two sinks that publish into one stream, or a replay, would be dropped as
 * duplicates. Each sink has a row of its own for an event, and so has a replay; the position of that row stays
 * through retries, redrives, restarts, a RENAME of the sink, and dump and restore.
 */
#pragma once

#include <array>
#include <cstring>
#include <string_view>

#include "delivery/base/uuid.h"
#include "delivery/kind.h"

namespace outbox {

class DeliveryIdentity {
public:
  explicit DeliveryIdentity(const ob_event &event) {
    uuid_text(event.id, text_.data());
    text_[36] = '-';
    for (size_t i = 0; i < 8; i++)
      std::memcpy(&text_[37 + 2 * i],
                  &hex_pairs[2 * ((static_cast<uint64_t>(event.position) >> (56 - 8 * i)) & 0xFF)], 2);
  }
  /* "<id of the event>-<its position in 16 hexadecimal digits>": always 53 characters, so that the check at enqueue
   * time, which knows no position, knows the size. */
  std::string_view text() const { return {text_.data(), text_.size()}; }

private:
  std::array<char, 53> text_;
};

}  // namespace outbox
