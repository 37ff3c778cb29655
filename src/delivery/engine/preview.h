/* preview.h: what an event would be on the wire, part by part, for users to look at. */
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace outbox {

struct PreviewPart {
  const char *part; /* a static string: "topic", "header", ... */
  std::string name; /* of a header */
  std::optional<std::string> bytes;
  /* What stands for the bytes when they are not known or not to be shown: a number of the protocol, or in parentheses
   * who knows more. Empty and without bytes: null. */
  std::string text;
};

using Preview = std::vector<PreviewPart>;

}  // namespace outbox
