/* headers.cpp: no header that is accepted can forge another one on the wire. */
#include "test/fuzz/fuzz.h"

#include <algorithm>

#include "delivery/options/headers.h"
#include "sinks/webhook/webhook_forward.h"
#include "delivery/http/http_headers.h"

using namespace outbox;

namespace {

bool is_one_line(std::string_view text) {
  return text.find_first_of(std::string_view("\r\n\0", 3)) == text.npos;
}

}  // namespace

void fuzz::one_input(std::string_view data) {
  Input input(data);
  std::string name = input.line(), text = without_nul(input.rest());
  for (const std::string &value : {text, name}) {
    bool good = accepted([&] { check_header(name, value); });
    HOLDS(good == (!name.empty() && is_one_line(name) && is_one_line(value)));
    bool http = accepted([&] { check_http_header(name, value); });
    HOLDS(http == (good && is_header_name(name) && !has_control(value)));
    if (http) {
      std::string line = header_line(name, value);
      HOLDS(is_one_line(line) && line.starts_with(name) && line.find_first_of(":;") == name.size());
    }
  }
  HOLDS(same_variable(name, name) && same_name(name, name));
  HOLDS(!same_name(name, text) || (same_variable(name, text) && is_reserved(name) == is_reserved(text)));

  HttpHeaders headers;
  if (accepted([&] { headers = parse_headers("headers", text); }))
    for (const auto &header : headers) {
      const std::string &key = header.first, &value = header.second;
      HOLDS(is_header_name(key) && is_one_line(value) && !has_control(value));
      HOLDS(!is_reserved(key) || same_name(key, "authorization") || same_name(key, "content-type"));
      HOLDS(std::count_if(headers.begin(), headers.end(), [&](auto &other) { return same_name(other.first, key); }) ==
            1);
      HOLDS(find_header(headers, key) == &value);
    }
  (void)accepted([&] { (void)ForwardedHeaders::parse("forward_headers", text); });
}
