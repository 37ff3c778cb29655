/*
 * concurrency_limiter.cpp: a few 429 among many answers narrow an endpoint by their share, as DCTCP does: halving
 * at each took a sink with 2 % of them from thousands of requests per second to eight. 502, 503 and 504 narrow it
 * only when half of the answers are such: one in six may mean that one server of six is down; with the rule for 429
 * such an endpoint got 50 to 300 requests per second instead of 780.
 */
#include "delivery/sinks/webhook/concurrency_limiter.h"

#include <algorithm>
#include <cmath>

namespace outbox {

using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Seconds = duration<double>;

static constexpr double slowest = 0.2;     // requests per second: a look now and then
static constexpr double weight = 0.125;    // of one answer among the last
static constexpr double many = 0.25;       // so many of them are 429: the rate falls too
static constexpr double most = 0.5;        // so many: 502 to 504 count as well, and the rate may fall below `fast`
static constexpr double fast = 10;         // who gets less than that is not throttled for one answer
static constexpr double slowest_rise = 1;  // requests per second, each second
static constexpr seconds round_without_answer{1};  // a request that hangs holds up the others so long at most
static constexpr milliseconds lateness{20};        // of a thread on a busy machine: it catches up
static constexpr seconds soon{4};
static constexpr size_t fewest = 64;  // of them most may be of keys that wait for a retry

ConcurrencyLimiter::ConcurrencyLimiter(size_t concurrency, std::optional<RateLimit> rate)
    : whole_(concurrency), limit_(concurrency), width_(concurrency), calm_(concurrency) {
  if (rate)
    rate_.emplace(*rate);
}

void ConcurrencyLimiter::share(size_t index, size_t of, int64_t *turns) {
  size_t before = limit_;
  limit_ = std::max<size_t>(1, of > 0 ? whole_ / of + (index < whole_ % of ? 1 : 0) : whole_);
  width_ = width_ == before ? limit_ : std::min(width_, limit_);
  calm_ = calm_ == before ? limit_ : std::min(calm_, limit_);
  if (rate_)
    rate_->share(turns, std::max<size_t>(of, 1));
}

double ConcurrencyLimiter::cap(Time now) const {
  return cap_ > 0 ? cap_ + step_ * Seconds(now - capped_).count() : 0;
}

/* Requests that hang must not keep the others waiting for ever, however few are let through. */
void ConcurrencyLimiter::catch_up(size_t running, Time now) {
  if (grows_by_time(running) && now - grown_ >= round_without_answer) {
    width_ = width_ < calm_ ? std::min(2 * width_, limit_) : width_ + 1;
    grown_ = now;
  }
}

bool ConcurrencyLimiter::start(size_t running, Time now) {
  catch_up(running, now);
  if (running >= width_ || now < paused_)
    return false;
  if (cap_ > 0) {
    double rate = cap(now);
    if (rate >= lifted_) {
      cap_ = 0;
    } else {
      if (now < next_)
        return false;
      next_ = std::max(next_, now - lateness) + std::chrono::duration_cast<Time::duration>(Seconds(1 / rate));
    }
  }
  if (rate_ && !rate_->take(now))
    return false;
  if (now - second_ >= seconds(1)) {
    rate_before_ = static_cast<double>(in_second_) / std::max(1.0, Seconds(now - second_).count());
    in_second_ = 0;
    second_ = now;
  }
  in_second_++;
  return true;
}

ConcurrencyLimiter::Time ConcurrencyLimiter::next(size_t running, Time now) const {
  Time at = paused_;
  if (running >= width_) {
    if (!grows_by_time(running))
      return Time::max();
    at = std::max(at, grown_ + round_without_answer);
  }
  if (cap_ > 0)
    at = std::max(at, next_);
  if (rate_)
    at = std::max(at, rate_->next(now));
  return std::max(at, now);
}

void ConcurrencyLimiter::succeeded(size_t running, Time now) {
  refused_ -= refused_ * weight;
  if (width_ >= limit_)
    return;
  if (width_ < calm_) {  // each answer lets two follow
    width_++;
    grown_ = now;
  } else if (running + 1 >= width_ && ++answers_ >= width_) {  // unless it does not use what it has
    width_++;
    answers_ = 0;
    grown_ = now;
  }
}

/* By a half when all answers ask for less, by little when one in a hundred does: so much may be an accident. One 503
 * in five may mean that a server of five is down, which is no reason to be slower; and when all are, the circuit
 * opens: the rate falls for 429 alone. */
void ConcurrencyLimiter::slow_down(Time started, Time now, bool too_many) {
  refused_ += (1 - refused_) * weight;
  if (!too_many && refused_ < most)
    return;
  if (started >= slowed_) {  // else it belongs to the same round
    slowed_ = now;
    width_before_ = width_;
    cap_before_ =
        cap_ > 0 ? std::min(cap(now), lifted_) : std::max({rate_before_, static_cast<double>(in_second_), fast});
  }
  double factor = 1 - refused_ / 2;
  width_ =
      std::clamp<size_t>(static_cast<size_t>(std::lround(static_cast<double>(width_before_) * factor)), 1, width_);
  calm_ = width_;
  answers_ = 0;
  grown_ = now;
  if (!too_many || refused_ < many)
    return;
  cap_ = std::max(cap_before_ * factor, refused_ < most ? fast : slowest);
  lifted_ = cap_before_ * 2;
  step_ = std::max(cap_before_ / 10, slowest_rise);
  capped_ = now;
  next_ = now + std::chrono::duration_cast<Time::duration>(Seconds(1 / cap_));
}

void ConcurrencyLimiter::pause_until(Time until) {
  paused_ = std::max(paused_, until);
}

void ConcurrencyLimiter::begin_slowly(Time now) {
  width_ = 1;
  calm_ = limit_;
  answers_ = 0;
  grown_ = now;
}

ConcurrencyLimiter::Time ConcurrencyLimiter::open_at(Time now) const {
  return rate_ ? std::max(paused_, rate_->next(now) - soon / 2) : paused_;
}

size_t ConcurrencyLimiter::room(Time now) const {
  if (now < open_at(now))
    return 0;
  size_t room = width_ < limit_ ? std::max<size_t>(8 * width_, fewest) : std::max<size_t>(4 * width_, 256);
  if (rate_)
    room = std::min(room, static_cast<size_t>(rate_->within(soon)));
  if (cap_ > 0)
    room = std::min(room, std::max<size_t>(1, static_cast<size_t>(cap(now) * Seconds(soon).count())));
  return room;
}

}  // namespace outbox
