/*
 * pace.h: a constant rate, for both load programs.
 */
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <thread>

namespace bench {

/* The realtime clock in microseconds, which the consumer, another process, reads too. */
inline int64_t now_us() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return time.tv_sec * 1000000LL + time.tv_nsec / 1000;
}

/* Event `n` is due at a fixed time, however late the earlier ones were. */
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

/* When an event began, and when its COMMIT returned (0: unknown): one line each, for the consumer. */
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
