/* utf8.h: UTF-8 by the table of RFC 3629, to judge what others wrote. */
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace fuzz {

/* The characters; nothing when it is no UTF-8. */
inline std::optional<std::vector<uint32_t>> utf8_characters(std::string_view text) {
  std::vector<uint32_t> characters;
  for (size_t i = 0; i < text.size();) {
    auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
    uint32_t lead = byte(i);
    size_t length = lead < 0x80                   ? 1
                    : lead >= 0xC2 && lead < 0xE0 ? 2
                    : lead >= 0xE0 && lead < 0xF0 ? 3
                    : lead >= 0xF0 && lead < 0xF5 ? 4
                                                  : 0;
    if (length == 0)
      return {};
    uint32_t code = length == 1 ? lead : lead & (0x7Fu >> length);
    for (size_t at = 1; at < length; at++) {
      if ((byte(i + at) & 0xC0) != 0x80)
        return {};
      code = code << 6 | (byte(i + at) & 0x3F);
    }
    if ((length == 3 && code < 0x800) || (length == 4 && code < 0x10000) || (code >= 0xD800 && code < 0xE000) ||
        code > 0x10FFFF)
      return {};
    characters.push_back(code);
    i += length;
  }
  return characters;
}

}  // namespace fuzz
