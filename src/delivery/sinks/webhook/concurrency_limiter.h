/*
 * concurrency_limiter.h: when an endpoint may get its next request, and how many at once.
 *
 * What its owner asked for: `concurrency` and `rate_limit`. What its answers say: when they ask for less, fewer go
 * at once, and after 429 slower, down to a half in each round; both rise again steadily. A pause that it asks for is
 * kept.
 * After an outage or a long stop: 1, 2, 4, ... at once, so that what has gathered does not knock it over.
 *
 * A pure class: time comes in as a parameter.
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

  /* This process is one of so many that share the endpoint: its part of the concurrency is one at least. `turns`:
   * where they keep the rate together; null: each has its part of that too. */
  void share(size_t index, size_t of, int64_t *turns);

  /* May another request start beside those that run? Then it counts as started. */
  bool start(size_t running, Time now);
  /* When start() has said no: when it may say yes although none has ended. Time::max(): not before one ends. */
  Time next(size_t running, Time now) const;

  void succeeded(size_t running, Time now);
  /* The answer to a request that was started then asked for less; or said that there were too many. */
  void slow_down(Time started, Time now, bool too_many);
  void pause_until(Time until);
  void begin_slowly(Time now);

  /* So many events are worth holding: what can be sent soon. */
  size_t room(Time now) const;
  size_t width() const { return width_; }
  /* No event is worth holding before. */
  Time open_at(Time now) const;

private:
  double cap(Time now) const;
  bool grows_by_time(size_t running) const { return width_ < limit_ && running >= width_; }
  void catch_up(size_t running, Time now);

  size_t whole_;  // of all processes together
  size_t limit_;  // of this one
  std::optional<RateLimiter> rate_;

  size_t width_;        // at once, at present
  size_t calm_;         // up to here it doubles with each round of answers, from here on it grows by one
  size_t answers_ = 0;  // since it last grew by one
  Time grown_{};        // when it last grew

  /* The part of the last answers that asked for less; and what was when the first of a round did. */
  double refused_ = 0;
  Time slowed_{};
  size_t width_before_ = 0;
  double cap_before_ = 0;

  /* Requests per second since it asked for less; 0 = as fast as they go. */
  double cap_ = 0, step_ = 0, lifted_ = 0;
  Time capped_{};
  Time next_{};  // the turn of the next request
  Time paused_{};

  /* How fast they went: in the last whole second, and since. */
  Time second_{};
  size_t in_second_ = 0;
  double rate_before_ = 0;
};

}  // namespace outbox
