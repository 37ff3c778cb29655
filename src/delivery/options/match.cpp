/* match.cpp: parses the option into pairs; the server's route_index.cpp uses them to find an event's sinks. */
#include "delivery/options/match.h"

#include <string_view>

#include "delivery/options/options.h"

namespace outbox {

FlatObject parse_match(const std::string &option, const std::string &text) {
  constexpr const char *example = R"({"tenant": "42", "region": "eu"})";
  constexpr std::string_view in_no_header("\r\n\0", 3);
  FlatObject headers = parse_flat_object(option, text, "header", example);
  if (headers.empty())
    refuse_value(option, "It names no header.",
                 "Leave the option out, or take it away with OPTIONS (DROP " + option +
                     "): then headers do not matter.");
  for (const auto &[name, value] : headers) {
    if (name.empty())
      refuse_value(option, "A header has no name.", std::string("Write it as ") + example + ".");
    if (name.find_first_of(in_no_header) != name.npos || value.find_first_of(in_no_header) != value.npos)
      refuse_value(option, "It has a line break or NUL, and no header has one.");
  }
  return headers;
}

}  // namespace outbox
