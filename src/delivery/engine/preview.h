/* preview.h: an event as it would be sent, part by part, for users to read. */
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace outbox {

struct PreviewPart {
  const char *part; /* a static string: "topic", "header", ... */
  std::string name; /* the name of a header */
  std::optional<std::string> bytes;
  /* Shown when the bytes are unknown or secret: a number of the protocol, or an explanation in parentheses. Empty,
   * and without bytes: the part is null. */
  std::string text;
};

using Preview = std::vector<PreviewPart>;

}  // namespace outbox
