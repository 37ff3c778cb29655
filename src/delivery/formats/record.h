/* record.h: what is sent of an event to a log such as Kafka. */
#pragma once

#include <string>
#include <vector>

#include "../delivery.h"

namespace outbox {

/* Points into the event and into itself: valid as long as both are. Meant to be used again for the next event, whose
 * texts then need no new memory. */
struct Record {
  std::string topic;
  int32_t partition = -1; /* -1: by the key */
  ob_text key;            /* data == NULL: no key */
  ob_text value;          /* data == NULL: a tombstone */
  std::vector<ob_header> headers;
  int64_t timestamp_ms = 0; /* Unix time; 0: the time at which it is sent */
  char id_text[36];

  size_t size() const {
    size_t total = key.len + value.len;
    for (const ob_header &header : headers)
      total += header.name.len + header.value.len;
    return total;
  }
};

}  // namespace outbox
