/*
 * concurrency_limiter.h: decides when an endpoint may get its next request, and how many may run at once.
 *
 * Three regulators, and a request starts only if all three allow it:
 * 1. The window: requests at once. 1 .. the option `concurrency`. It shrinks when responses ask for less (429, 502,
 * 503, 504), by up to a half per round, and then grows by 1 per window of successes. After an outage or a long stop
 * it starts at 1 and doubles per round, so that the backlog does not overload the endpoint.
 * 2. The rate cap: requests per second. None at first; 429 sets it below the present rate, it rises steadily, and
 * ends at twice the rate before the cut.
 * 3. What the owner or the endpoint asked for explicitly: the option `rate_limit`, and pauses (Retry-After).
 *
 * Time is a parameter; the class has no clock and no lock.
 */
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "delivery/options/rate_limiter.h"

namespace outbox {

class ConcurrencyLimiter {
public:
  using Time = RateLimiter::Time;

  ConcurrencyLimiter(size_t concurrency, std::optional<RateLimit> rate);

  /* This process is number `index` of `of` that share the endpoint; its part of the concurrency is at least one.
   * `rate_clock`: shared memory for the rate limit; null: each process has its part of that too. */
  void share(size_t index, size_t of, int64_t *rate_clock);

  /* Returns true if another request may start while `running` ones run, and counts it as started. */
  bool start(size_t running, Time now);
  /* After start() has returned false: when it may return true although no request has ended. Time::max(): not before
   * one ends. */
  Time next(size_t running, Time now) const;

  void succeeded(size_t running, Time now);
  /* A request that was started at `started` got a response that asked for less; `too_many`: it was 429. */
  void slow_down(Time started, Time now, bool too_many);
  void pause_until(Time until);
  void end_pause() { paused_until_ = Time(); }
  Time paused_until() const { return paused_until_; }
  void begin_slowly(Time now);

  /* How many events, running and queued, are worth holding: what can be sent within about 4 s. */
  size_t max_held(Time now) const;
  size_t window() const { return window_; }
  /* Before this time no event is worth holding. */
  Time open_at(Time now) const;

private:
  double rate_cap(Time now) const;
  bool may_grow_by_time(size_t running) const { return window_ < limit_ && running >= window_; }
  void grow_by_time(size_t running, Time now);

  size_t total_limit_;  // the option `concurrency`: all processes together
  size_t limit_;        // this process's part of it
  std::optional<RateLimiter> rate_;

  size_t window_;            // requests that may run at once now
  size_t slow_start_until_;  // below this the window doubles per round, above it grows by one
  size_t successes_ = 0;     // successes since the window last grew by one
  Time grown_at_{};          // when the window last grew

  /* The share of recent responses that asked for less, and the values when the first response of a round did. */
  double refused_share_ = 0;
  Time round_began_{};
  size_t window_before_ = 0;
  double rate_before_cut_ = 0;

  /* The rate cap in requests per second, its growth per second, and where it ends. 0 = no cap. */
  double rate_cap_ = 0, rate_cap_step_ = 0, rate_cap_ends_at_ = 0;
  Time rate_cap_set_at_{};
  Time next_start_{};  // the cap's next free slot
  Time paused_until_{};

  /* Request starts: the rate of the last full second, and the number since. */
  Time second_began_{};
  size_t starts_in_second_ = 0;
  double last_rate_ = 0;
};

}  // namespace outbox
