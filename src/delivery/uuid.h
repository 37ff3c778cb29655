/* uuid.h: the text of an event's id, as every format writes it. */
#pragma once

#include <cstdint>
#include <string>

namespace outbox {

/* 36 lower-case characters, without a terminating NUL. */
inline void uuid_text(const uint8_t id[16], char out[36]) {
  static constexpr char digits[] = "0123456789abcdef";
  for (int i = 0; i < 16; i++) {
    if (i == 4 || i == 6 || i == 8 || i == 10)
      *out++ = '-';
    *out++ = digits[id[i] >> 4];
    *out++ = digits[id[i] & 15];
  }
}

inline std::string uuid_text(const uint8_t id[16]) {
  std::string text(36, '\0');
  uuid_text(id, text.data());
  return text;
}

}  // namespace outbox
