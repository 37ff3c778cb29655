/* record.h: what a format makes of an event for a log such as Kafka: key, value and headers. */
#pragma once

#include <vector>

#include "../delivery.h"

namespace outbox {

/* Points into the event and into itself: valid as long as both are. Meant to be used again for the next event. */
struct Record {
  ob_text key;   /* data == NULL: no key */
  ob_text value; /* data == NULL: a tombstone */
  std::vector<ob_header> headers;
  char id_text[36];

  size_t size() const {
    size_t total = key.len + value.len;
    for (const ob_header &header : headers)
      total += header.name.len + header.value.len;
    return total;
  }
};

}  // namespace outbox
