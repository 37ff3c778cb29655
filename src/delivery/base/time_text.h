/* time_text.h: times as RFC 3339 text in UTC. */
#pragma once

#include <cstdint>
#include <string>

namespace outbox {

/* Appends 2024-05-01T12:00:00.123456Z. */
void append_time(int64_t unix_us, std::string &out);

/* Microseconds to milliseconds, rounded down, also before 1970. */
inline int64_t floor_ms(int64_t us) {
  return us / 1000 - (us % 1000 < 0);
}

/* Whether RFC 3339 can represent the time: years 0 to 9999. */
bool is_writable_time(int64_t unix_us);

}  // namespace outbox
