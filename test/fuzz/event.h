/* event.h: an event made of fuzzed lines. */
#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "delivery/delivery.h"
#include "test/fuzz/fuzz.h"

namespace fuzz {

/* Lines: which parts are NULL; types, key and so on; then headers, NAME and VALUE by turns; an empty line; the
 * payload. Not to be moved. */
struct Event {
  explicit Event(Input &input) {
    uint8_t absent = input.digit();
    uint8_t more = input.digit();
    auto text = [&](bool missing) {
      std::string &kept = texts.emplace_back(without_nul(input.line()));
      return missing ? ob_text{nullptr, 0} : ob_text{kept.data(), kept.size()};
    };
    raw.ticket = 1;
    raw.position = 42;
    raw.aggregate_type = text(false);
    raw.aggregate_id = text(absent & 1);
    raw.event_type = text(false);
    raw.key = text(absent & 2);
    raw.key_hash = absent & 2 ? 0 : 1;
    raw.dedup_key = text(absent & 4);
    raw.content_type = text(more & 1);
    raw.payload_is_bytes = !(more & 1);
    raw.has_seq = more & 2;
    std::string numbers = input.line();
    Input number(numbers);
    raw.created_at_us = number.number();
    raw.seq = number.number();
    for (int i = 0; i < 16; i++)
      raw.id[i] = number.digit();
    for (;;) {
      std::string name = without_nul(input.line());
      if (name.empty())
        break;
      const std::string &kept = texts.emplace_back(name);
      headers.push_back({{kept.data(), kept.size()}, text(absent & 8), bool(more & 4)});
    }
    raw.headers = headers.data();
    raw.n_headers = headers.size();
    const std::string &payload = texts.emplace_back(raw.payload_is_bytes ? input.rest() : without_nul(input.rest()));
    raw.payload = more & 8 ? ob_text{nullptr, 0} : ob_text{payload.data(), payload.size()};
    raw.attempt = 1;
  }
  Event(const Event &) = delete;
  Event &operator=(const Event &) = delete;

  ob_event raw{};
  std::deque<std::string> texts;
  std::vector<ob_header> headers;
};

}  // namespace fuzz
