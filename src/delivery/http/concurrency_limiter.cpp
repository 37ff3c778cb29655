/*
 * concurrency_limiter.cpp: a few 429 among many responses shrink the window in proportion to their share, as DCTCP
 * does: halving it at each 429 took a sink with 2 % of them from thousands of requests per second to eight. 502,
 * 503 and 504 shrink it only if they are half of the responses: one in six can mean that one server of six is down;
 * treated like 429, such an endpoint got 50 to 300 requests per second instead of 780.
 */
#include "delivery/http/concurrency_limiter.h"

#include <algorithm>
#include <cmath>

namespace outbox {

using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Seconds = duration<double>;

/* Shares of recent responses that ask for less. From rate_cut_share on, 429 also cuts the rate; from overload_share
 * on, 502 to 504 count too, and the rate may fall below mild_rate_floor. */
static constexpr double rate_cut_share = 0.25, overload_share = 0.5;
static constexpr double ewma_weight = 0.125;  // of one response in refused_share_

/* Requests per second. min_rate_cap still tries the endpoint every 5 s. */
static constexpr double min_rate_cap = 0.2, mild_rate_floor = 10;
static constexpr double min_rate_cap_step = 1;  // per second

static constexpr seconds growth_interval{1};     // while requests hang, the window grows this often
static constexpr milliseconds max_lateness{20};  // of a thread on a busy machine: later requests catch up
static constexpr seconds horizon{4};             // hold what can be sent within this time
static constexpr size_t min_held = 64;           // most of these may be of keys that wait for a retry

ConcurrencyLimiter::ConcurrencyLimiter(size_t concurrency, std::optional<RateLimit> rate)
    : total_limit_(concurrency), limit_(concurrency), window_(concurrency), slow_start_until_(concurrency) {
  if (rate)
    rate_.emplace(*rate);
}

void ConcurrencyLimiter::share(size_t index, size_t of, int64_t *rate_clock) {
  size_t before = limit_;
  limit_ = std::max<size_t>(1, of > 0 ? total_limit_ / of + (index < total_limit_ % of ? 1 : 0) : total_limit_);
  window_ = window_ == before ? limit_ : std::min(window_, limit_);
  slow_start_until_ = slow_start_until_ == before ? limit_ : std::min(slow_start_until_, limit_);
  if (rate_)
    rate_->share(rate_clock, std::max<size_t>(of, 1));
}

double ConcurrencyLimiter::rate_cap(Time now) const {
  return rate_cap_ > 0 ? rate_cap_ + rate_cap_step_ * Seconds(now - rate_cap_set_at_).count() : 0;
}

/* Lets the window grow although no response comes: hanging requests must not block all others. */
void ConcurrencyLimiter::grow_by_time(size_t running, Time now) {
  if (may_grow_by_time(running) && now - grown_at_ >= growth_interval) {
    window_ = window_ < slow_start_until_ ? std::min(2 * window_, limit_) : window_ + 1;
    grown_at_ = now;
  }
}

bool ConcurrencyLimiter::start(size_t running, Time now) {
  grow_by_time(running, now);
  if (running >= window_ || now < paused_until_)
    return false;
  if (rate_cap_ > 0) {
    double rate = rate_cap(now);
    if (rate >= rate_cap_ends_at_) {
      rate_cap_ = 0;
    } else {
      if (now < next_start_)
        return false;
      next_start_ =
          std::max(next_start_, now - max_lateness) + std::chrono::duration_cast<Time::duration>(Seconds(1 / rate));
    }
  }
  if (rate_ && !rate_->take(now))
    return false;
  if (now - second_began_ >= seconds(1)) {
    last_rate_ = static_cast<double>(starts_in_second_) / std::max(1.0, Seconds(now - second_began_).count());
    starts_in_second_ = 0;
    second_began_ = now;
  }
  starts_in_second_++;
  return true;
}

ConcurrencyLimiter::Time ConcurrencyLimiter::next(size_t running, Time now) const {
  Time at = paused_until_;
  if (running >= window_) {
    if (!may_grow_by_time(running))
      return Time::max();
    at = std::max(at, grown_at_ + growth_interval);
  }
  if (rate_cap_ > 0)
    at = std::max(at, next_start_);
  if (rate_)
    at = std::max(at, rate_->next(now));
  return std::max(at, now);
}

void ConcurrencyLimiter::succeeded(size_t running, Time now) {
  refused_share_ -= refused_share_ * ewma_weight;
  if (window_ >= limit_)
    return;
  if (window_ < slow_start_until_) {  // slow start: each success lets two requests follow
    window_++;
    grown_at_ = now;
  } else if (running + 1 >= window_ && ++successes_ >= window_) {  // only if the window is in use
    window_++;
    successes_ = 0;
    grown_at_ = now;
  }
}

/* Shrinks the window by a half if all responses ask for less, and by little if one in a hundred does. 502 to 504 do
 * not cut the rate: one in five can mean that one server of five is down, and if all fail, the circuit opens. */
void ConcurrencyLimiter::slow_down(Time started, Time now, bool too_many) {
  refused_share_ += (1 - refused_share_) * ewma_weight;
  if (!too_many && refused_share_ < overload_share)
    return;
  if (started >= round_began_) {  // otherwise the request was started before the last cut
    round_began_ = now;
    window_before_ = window_;
    rate_before_cut_ = rate_cap_ > 0
                           ? std::min(rate_cap(now), rate_cap_ends_at_)
                           : std::max({last_rate_, static_cast<double>(starts_in_second_), mild_rate_floor});
  }
  double factor = 1 - refused_share_ / 2;
  window_ =
      std::clamp<size_t>(static_cast<size_t>(std::lround(static_cast<double>(window_before_) * factor)), 1, window_);
  slow_start_until_ = window_;
  successes_ = 0;
  grown_at_ = now;
  if (!too_many || refused_share_ < rate_cut_share)
    return;
  rate_cap_ = std::max(rate_before_cut_ * factor, refused_share_ < overload_share ? mild_rate_floor : min_rate_cap);
  rate_cap_ends_at_ = rate_before_cut_ * 2;
  rate_cap_step_ = std::max(rate_before_cut_ / 10, min_rate_cap_step);
  rate_cap_set_at_ = now;
  next_start_ = now + std::chrono::duration_cast<Time::duration>(Seconds(1 / rate_cap_));
}

void ConcurrencyLimiter::pause_until(Time until) {
  paused_until_ = std::max(paused_until_, until);
}

void ConcurrencyLimiter::begin_slowly(Time now) {
  window_ = 1;
  slow_start_until_ = limit_;
  successes_ = 0;
  grown_at_ = now;
}

ConcurrencyLimiter::Time ConcurrencyLimiter::open_at(Time now) const {
  return rate_ ? std::max(paused_until_, rate_->next(now) - horizon / 2) : paused_until_;
}

size_t ConcurrencyLimiter::max_held(Time now) const {
  if (now < open_at(now))
    return 0;
  size_t held = window_ < limit_ ? std::max<size_t>(8 * window_, min_held) : std::max<size_t>(4 * window_, 256);
  if (rate_)
    held = std::min(held, static_cast<size_t>(rate_->within(horizon)));
  if (rate_cap_ > 0)
    held = std::min(held, std::max<size_t>(1, static_cast<size_t>(rate_cap(now) * Seconds(horizon).count())));
  return held;
}

}  // namespace outbox
