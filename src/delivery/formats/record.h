/* record.h: what is sent of an event to a log such as Kafka. */
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "delivery/delivery.h"

namespace outbox {

inline ob_text as_text(std::string_view text) {
  return {text.data(), text.size()};
}

/* Points into the event and into itself: valid as long as both are. Meant to be used again for the next event, whose
 * texts then need no new memory. */
struct Record {
  std::string topic;
  int32_t partition = -1; /* -1: by the key */
  ob_text key{};          /* data == NULL: no key */
  ob_text value{};        /* data == NULL: a tombstone */
  std::vector<ob_header> headers;
  int64_t timestamp_ms = 0; /* Unix time; 0: the time at which it is sent */
  char id_text[36];

  size_t size() const {
    size_t total = key.len + value.len;
    for (const ob_header &header : headers)
      total += header.name.len + header.value.len;
    return total;
  }

  /* Forgets the last event. */
  void begin() {
    headers.clear();
    used_ = 0;
  }
  /* An empty text that lives as long as what was made of this event. */
  std::string &text() {
    if (used_ == texts_.size())
      texts_.emplace_back();
    std::string &next = texts_[used_++];
    next.clear();
    return next;
  }
  /* A copy that needs neither the event nor this record. */
  Record kept() const {
    Record copy;
    auto keep = [&copy](const ob_text &from) {
      if (!from.data)
        return from;
      std::string &to = copy.text();
      to.assign(from.data, from.len);
      return ob_text{to.data(), to.size()};
    };
    copy.topic = topic;
    copy.partition = partition;
    copy.timestamp_ms = timestamp_ms;
    copy.key = keep(key);
    copy.value = keep(value);
    for (const ob_header &header : headers)
      copy.headers.push_back({keep(header.name), keep(header.value), header.binary});
    return copy;
  }
  void add_header(std::string_view name, const ob_text &value) { headers.push_back({as_text(name), value, false}); }

private:
  std::deque<std::string> texts_; /* a deque: they stay where they are */
  size_t used_ = 0;
};

}  // namespace outbox
