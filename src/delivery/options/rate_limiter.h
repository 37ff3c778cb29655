/*
 * rate_limiter.h: never more than so many requests within any stretch of time: what an endpoint's owner asked for.
 *
 * A pure class but for its clock: one number, which several processes may share in memory, so that their sum keeps
 * the limit whoever of them has something to send.
 */
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace outbox {

/* '100/s': so many requests per so much time. */
struct RateLimit {
  int64_t requests;
  std::chrono::nanoseconds per;
};

/* '100/s', '600/min', '1000/h', '1/10s'. Throws BadInput. */
RateLimit parse_rate(const std::string &name, const std::string &value);

class RateLimiter {
public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  explicit RateLimiter(RateLimit rate);
  /* Counts together with all others that have this cell, in this process or another one; it outlives the gate, and
   * holds 0 at first. Null: it counts alone, and may use one part of so many. */
  void share(int64_t *cell, size_t parts);

  /* True when a request may start now, and then it counts. */
  bool take(Time now);
  /* When the next one may, if nobody else takes it. */
  Time next(Time now) const;
  /* So many may start within this time, at least one. */
  int64_t within(Duration time) const;

private:
  int64_t slot(int64_t cell, int64_t now) const;

  int64_t whole_;     // ns between two requests of all
  int64_t interval_;  // of those that count together
  int64_t burst_;     // so many may start at once: a thread that wakes up late catches up
  int64_t ahead_;     // so much earlier than its turn one may start
  int64_t own_ = 0;
  int64_t *cell_ = &own_;  // the turn of the next request, ns of the monotonic clock
};

}  // namespace outbox
