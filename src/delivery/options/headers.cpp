/*
 * headers.cpp: headers are checked at enqueue time, so that the writer of the event gets the error.
 */
#include "delivery/options/headers.h"

#include <algorithm>

#include "delivery/base/text.h"
#include "delivery/base/text_view.h"

namespace outbox {

static bool forges(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return c == '\r' || c == '\n' || c == '\0'; });
}

/* Errors show names but not values: values may be secret. */
static std::string printable(std::string_view name) {
  std::string out = shortened(name);
  for (char &c : out)
    if (static_cast<unsigned char>(c) < 0x20)
      c = '?';
  return out;
}

void check_header(std::string_view name, std::string_view value) {
  if (name.empty())
    throw BadInput(OB_BAD_VALUE, "headers", "header name must not be empty");
  if (forges(name))
    throw BadInput(OB_BAD_VALUE, "headers", "header name \"" + printable(name) + "\" contains a line break or NUL",
                   "A header name must not contain carriage return, line feed or NUL.");
  if (forges(value))
    throw BadInput(OB_BAD_VALUE, "headers",
                   "value of header \"" + printable(name) + "\" contains a line break or NUL",
                   "A header value must not contain carriage return, line feed or NUL.",
                   "Encode such a value (percent-encoding, base64), or move it into the payload.");
}

void check_headers(const ob_event &event) {
  for (const ob_header &header : headers_of(event))
    check_header(view(header.name), header.binary ? std::string_view() : view(header.value));
}

}  // namespace outbox
