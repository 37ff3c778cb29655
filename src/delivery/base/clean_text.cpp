/*
 * clean_text.cpp: a peer's text may hold invalid UTF-8 and terminal control characters. PostgreSQL refuses the
 * former in a text column, and the latter could forge lines of the server's log.
 */
#include "delivery/base/clean_text.h"

#include <nlohmann/json.hpp>

#include "delivery/base/text.h"

namespace outbox {

std::string clean_text(std::string_view text) {
  using json = nlohmann::json;
  // Writing and parsing JSON replaces every invalid byte with U+FFFD.
  std::string valid =
      json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace)).get_ref<const std::string &>();
  std::string clean;
  for (char c : valid) {
    if (static_cast<unsigned char>(c) > 0x20 && c != 0x7f)
      clean += c;
    else if (!clean.empty() && clean.back() != ' ')
      clean += ' ';
  }
  return std::string(trim(clean));
}

}  // namespace outbox
