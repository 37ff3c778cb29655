/* rate.cpp: a rate that is accepted has the documented form, and is never exceeded within its stretch of time. */
#include "test/fuzz/fuzz.h"

#include <deque>

#include "delivery/options/rate_limiter.h"

using namespace outbox;
using Time = RateLimiter::Time;
using std::chrono::nanoseconds;

void fuzz::one_input(std::string_view data) {
  Input input(data);
  std::string text = without_nul(input.line());
  RateLimit rate{};
  if (!accepted([&] { rate = parse_rate("rate_limit", text); }))
    return;
  HOLDS(rate.requests >= 1 && rate.per >= std::chrono::milliseconds(1) && rate.per <= std::chrono::hours(24));
  HOLDS(rate.requests <= 100'000 * (rate.per.count() / 1'000'000) / 1000);
  HOLDS(text.find_first_not_of("0123456789/msinhd \t\r\n") == std::string::npos);

  /* Requests come when the rest of the data says; two limiters count together. */
  int64_t cell = input.digit() % 3 == 0 ? input.number() : 0;
  RateLimiter one(rate), other(rate);
  one.share(&cell, 2);
  other.share(&cell, 2);
  std::deque<Time> taken;
  Time now = Time() + std::chrono::hours(1);
  for (size_t i = 0; i < 4096 && !input.empty(); i++) {
    uint8_t step = input.digit();
    now += rate.per / 4096 * step;
    RateLimiter &limiter = step % 2 == 0 ? one : other;
    for (int burst = 0; burst < step % 8; burst++) {
      Time next = limiter.next(now);
      bool took = limiter.take(now);
      HOLDS(next >= now && took == (next == now));
      if (took)
        taken.push_back(now);
    }
    while (!taken.empty() && taken.front() <= now - rate.per)
      taken.pop_front();
    HOLDS(taken.size() <= static_cast<size_t>(rate.requests));
    Time turn = limiter.next(now);
    HOLDS(turn - now <= 2 * rate.per); /* a turn is never far away */
    HOLDS(limiter.next(turn) == turn); /* and comes */
    HOLDS(limiter.within(rate.per) >= 1 && limiter.within(rate.per) <= rate.requests);
  }
}
