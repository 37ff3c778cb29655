/* record.h: a record for a log such as Kafka. */
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "delivery/base/text_view.h"
#include "delivery/kind.h"
#include "delivery/options/headers.h"

namespace outbox {

/* Points into the event and into itself: valid as long as both exist. Reuse one object for many events, so that its
 * strings keep their memory. */
struct Record {
  std::string topic;
  int32_t partition = -1; /* -1: chosen by the key */
  ob_text key{};          /* data == NULL: no key */
  ob_text value{};        /* data == NULL: a tombstone */
  std::vector<ob_header> headers;
  int64_t timestamp_ms = 0; /* Unix time; 0: the time of sending */
  char id_text[36];

  size_t size() const {
    size_t total = key.len + value.len;
    for (const ob_header &header : headers)
      total += header.name.len + header.value.len;
    return total;
  }

  /* Clears the record for the next event. */
  void begin() {
    headers.clear();
    used_ = 0;
  }
  /* Returns an empty string that lives until the next begin(). */
  std::string &text() {
    if (used_ == texts_.size())
      texts_.emplace_back();
    std::string &next = texts_[used_++];
    next.clear();
    return next;
  }
  /* A copy that owns all of its data. */
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
  /* The only way in which a column becomes a header. Throws BadInput for a text with a line break or NUL. */
  void add_header(std::string_view name, const ob_text &value, bool binary = false) {
    if (!binary)
      check_header(name, view(value));
    headers.push_back({as_text(name), value, binary});
  }

private:
  std::deque<std::string> texts_; /* a deque, so that the strings do not move */
  size_t used_ = 0;
};

}  // namespace outbox
