/*
 * rate_limiter.cpp: the generic cell rate algorithm (GCRA). Its state is the time of the next free slot, advanced
 * by compare-and-swap in shared memory. The rate is not divided among the workers, because all keys of one customer
 * may belong to one worker.
 */
#include "delivery/options/rate_limiter.h"

#include <algorithm>
#include <charconv>

#include "delivery/base/text.h"
#include "delivery/options/options.h"

namespace outbox {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

static constexpr int64_t max_per_second = 100'000;
static constexpr milliseconds longest = std::chrono::hours(24);
static constexpr nanoseconds max_lateness = milliseconds(20);  // possible delay of a thread on a busy machine

RateLimit parse_rate(const std::string &name, const std::string &value) {
  std::string_view text = trim(value);
  size_t slash = std::min(text.find('/'), text.size());
  std::string_view count = trim(text.substr(0, slash)), time = trim(text.substr(std::min(slash + 1, text.size())));
  int64_t requests = 0;
  auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), requests);
  bool good = error == std::errc() && end == count.data() + count.size() && requests >= 1;
  milliseconds per(0);
  try {
    bool has_number = !time.empty() && time[0] >= '0' && time[0] <= '9';
    per = parse_duration(name, (has_number ? "" : "1") + std::string(time), milliseconds(1), longest);
  } catch (const BadInput &) {
    good = false;
  }
  if (!good || requests > max_per_second * per.count() / 1000)
    throw_bad_value(name, value,
                    "Expected a number of requests, a slash and a time: ms, s, min (or m), h, d; at most " +
                        std::to_string(max_per_second) + " per second, and a day.",
                    "Examples: '100/s', '600/min', '1000/h', '1/10s'.");
  return {requests, per};
}

/* In any period T, at most T / interval + 1 requests start in their slots, and burst_ - 1 more start ahead of theirs.
 * The interval is chosen so that the sum keeps the limit. */
RateLimiter::RateLimiter(RateLimit rate) {
  per_ = rate.per.count();
  int64_t late = rate.requests * max_lateness.count() / rate.per.count();
  burst_ = 1 + std::min(late, rate.requests / 50);
  int64_t slots = rate.requests - burst_ + 1;
  total_interval_ = (rate.per.count() + slots - 1) / slots;
  share(nullptr, 1);
}

void RateLimiter::share(int64_t *cell, size_t parts) {
  cell_ = cell ? cell : &own_;
  interval_ = total_interval_ * static_cast<int64_t>(cell ? 1 : parts);
  ahead_ = (burst_ - 1) * total_interval_;
}

/* One request can put the slot at `latest` at most. A slot much later than that is left over from a slower rate or
 * from the clock of an earlier boot, and is set to `latest` in memory: a slot that follows the time never comes. A
 * slot that is a little later may be another thread's, whose `now` is newer. */
int64_t RateLimiter::slot(int64_t now) const {
  std::atomic_ref<int64_t> shared(*cell_);
  int64_t cell = shared.load(std::memory_order_relaxed), latest = now + ahead_ + interval_;
  while (cell > latest + per_)
    if (shared.compare_exchange_weak(cell, latest, std::memory_order_relaxed))
      return latest;
  return cell;
}

bool RateLimiter::take(Time now) {
  int64_t at = now.time_since_epoch().count();
  std::atomic_ref<int64_t> shared(*cell_);
  for (int64_t cell = slot(at); cell <= at + ahead_;)
    if (shared.compare_exchange_weak(cell, std::max(cell, at) + interval_, std::memory_order_relaxed))
      return true;
  return false;
}

RateLimiter::Time RateLimiter::next(Time now) const {
  int64_t at = now.time_since_epoch().count();
  return Time(Duration(std::max(at + ahead_, slot(at)) - ahead_));
}

int64_t RateLimiter::within(Duration time) const {
  return std::max<int64_t>(1, time.count() / interval_);
}

}  // namespace outbox
