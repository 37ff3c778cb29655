/*
 * pace.h: events at an even rate, as both load programs make them, so that they send the same bytes at the same
 * times.
 */
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>
#include <thread>

namespace bench {

constexpr int keys = 1000;
constexpr size_t payload_bytes = 300;

inline std::string key_of(long n) {
  return "k" + std::to_string(n % keys);
}

/* {"n": 17, "note": "..."} as jsonb writes it, so that both ways send the same length. */
inline std::string payload_of(long n) {
  std::string text = "{\"n\": " + std::to_string(n) + ", \"note\": \"";
  uint32_t noise = static_cast<uint32_t>(n) * 2654435761u + 1;
  while (text.size() < payload_bytes - 2) {
    noise = noise * 1664525u + 1013904223u;
    text += "0123456789abcdef"[noise >> 28];
  }
  return text + "\"}";
}

/* The realtime clock in microseconds: the one that the consumer, another process, reads too. */
inline int64_t now_us() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return time.tv_sec * 1000000LL + time.tv_nsec / 1000;
}

/* Event `n` is due at a fixed time, however late the ones before it were. */
class Pace {
public:
  explicit Pace(double rate) : start_(std::chrono::steady_clock::now()), rate_(rate) {}
  void wait_for(long n) const {
    std::this_thread::sleep_until(start_ + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                               std::chrono::duration<double>(static_cast<double>(n) / rate_)));
  }

private:
  std::chrono::steady_clock::time_point start_;
  double rate_;
};

/* When an event began, and when its commit was answered (0: not known): one line each, for the consumer's side. */
struct Times {
  int64_t begun_us = 0;
  int64_t done_us = 0;
};

inline bool write_times(const char *path, const Times *times, long count) {
  FILE *out = fopen(path, "w");
  if (!out)
    return false;
  for (long n = 0; n < count; n++)
    fprintf(out, "%lld %lld\n", static_cast<long long>(times[n].begun_us), static_cast<long long>(times[n].done_us));
  return fclose(out) == 0;
}

}  // namespace bench
