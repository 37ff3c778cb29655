/*
 * rate_limiter.h: limits the number of requests in any period of the given length: the option rate_limit.
 *
 * The only state is one number, which several processes can share in memory, so that the sum of their requests
 * keeps the limit regardless of which process sends. Time is a parameter.
 */
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "delivery/options/options.h"

namespace outbox {

/* '100/s': 100 requests per second. */
struct RateLimit {
  static constexpr OptionForm form = OptionForm::Rate;
  int64_t requests;
  std::chrono::nanoseconds per;
};

/* Parses '100/s', '600/min', '1000/h', '1/10s'. Throws BadInput. */
RateLimit parse_rate(const std::string &name, const std::string &value);

class RateLimiter {
public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  explicit RateLimiter(RateLimit rate);
  /* Shares the limit with all limiters that use this cell, in this and other processes. The cell must outlive the
   * limiter and start as 0. With null, the limiter counts alone and uses one of `parts` equal parts of the rate. */
  void share(int64_t *cell, size_t parts);

  /* Returns true if a request may start now, and counts it. */
  bool take(Time now);
  /* When the next request may start, if no other process takes it. What a slower rate has left in the cell ends here.
   */
  Time next(Time now) const;
  /* How many requests may start within this time, at least one. */
  int64_t within(Duration time) const;

private:
  int64_t slot(int64_t now) const;

  int64_t per_;             // ns
  int64_t total_interval_;  // ns between two requests of all processes
  int64_t interval_;        // ns between two requests that share cell_
  int64_t burst_;           // requests that may start at once, so that a delayed thread can catch up
  int64_t ahead_;           // ns by which a request may start before its slot
  int64_t own_ = 0;
  int64_t *cell_ = &own_;  // the next free slot, in ns of the monotonic clock
};

}  // namespace outbox
