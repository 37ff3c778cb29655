/* uuid.h: an event's id as text. */
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

namespace outbox {

constexpr std::array<char, 512> make_hex_pairs() {
  constexpr char digits[] = "0123456789abcdef";
  std::array<char, 512> pairs{};
  for (size_t byte = 0; byte < 256; byte++) {
    pairs[2 * byte] = digits[byte >> 4];
    pairs[2 * byte + 1] = digits[byte & 15];
  }
  return pairs;
}
inline constexpr std::array<char, 512> hex_pairs = make_hex_pairs();

/* 36 lower-case characters, without a terminating NUL. */
inline void uuid_text(const uint8_t id[16], char out[36]) {
  auto put = [&](int from, int to) {
    for (int i = from; i < to; i++, out += 2)
      std::memcpy(out, &hex_pairs[2 * size_t(id[i])], 2);
  };
  put(0, 4);
  for (int group = 4; group < 10; group += 2) {
    *out++ = '-';
    put(group, group + 2);
  }
  *out++ = '-';
  put(10, 16);
}

inline std::string uuid_text(const uint8_t id[16]) {
  std::string text(36, '\0');
  uuid_text(id, text.data());
  return text;
}

}  // namespace outbox
