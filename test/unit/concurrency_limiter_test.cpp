/* The rate and concurrency of requests to an endpoint: a simulated clock, no thread, no socket. */
#include "delivery/http/concurrency_limiter.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "delivery/http/connection_quota.h"
#include "delivery/options/options.h"

#include "bad_input.h"

using namespace outbox;
using namespace std::chrono_literals;
using Time = ConcurrencyLimiter::Time;
using std::chrono::microseconds;

namespace {

const Time start = Time() + 1h;

/* The highest number within any period of this length. */
size_t most_within(const std::vector<Time> &times, RateLimiter::Duration length) {
  size_t most = 0, first = 0;
  for (size_t last = 0; last < times.size(); ++last) {
    while (times[last] - times[first] >= length)
      ++first;
    most = std::max(most, last - first + 1);
  }
  return most;
}

/* A simulated endpoint that needs `latency` for each response, with a sink that always has events: records what the
 * endpoint sees. */
struct Endpoint {
  explicit Endpoint(size_t concurrency, std::optional<RateLimit> rate = {}) : pace(concurrency, rate) {}

  /* `refuses`: which requests it answers with a request to slow down, depending on how many are open. */
  void run(RateLimiter::Duration length, RateLimiter::Duration latency, size_t refuses_above = SIZE_MAX) {
    for (Time end = now + length; now < end;) {
      while (pace.start(open.size(), now)) {
        open.emplace(now + latency, now);
        starts.push_back(now);
        most_open = std::max(most_open, open.size());
      }
      Time next = std::min(end, pace.next(open.size(), now));
      if (!open.empty())
        next = std::min(next, open.begin()->first);
      now = std::max(now + 1us, next);
      for (; !open.empty() && open.begin()->first <= now; open.erase(open.begin()))
        if (open.size() > refuses_above) {
          pace.slow_down(open.begin()->second, now, true);
          refused++;
        } else {
          pace.succeeded(open.size() - 1, now);
        }
    }
  }

  ConcurrencyLimiter pace;
  Time now = start;
  std::multimap<Time, Time> open;  // end, begin
  std::vector<Time> starts;
  size_t most_open = 0, refused = 0;
};

}  // namespace

TEST(RateLimit, IsANumberPerATime) {
  struct {
    const char *text;
    int64_t requests;
    RateLimiter::Duration per;
  } good[] = {
      {"100/s", 100, 1s}, {"600/min", 600, 1min}, {"1000/h", 1000, 1h}, {"1/10s", 1, 10s}, {" 5 / 2 m ", 5, 2min}};
  for (auto &[text, requests, per] : good) {
    RateLimit rate = parse_rate("rate_limit", text);
    EXPECT_EQ(rate.requests, requests) << text;
    EXPECT_EQ(rate.per, per) << text;
  }
  for (const char *bad : {"", "100", "/s", "100/", "0/s", "-1/s", "1.5/s", "100/y", "100 per s", "100/s/s", "1e3/s",
                          "1/0s", "1/2d", "1000000/s", "99999999999999999999/s", "100/-1s"})
    EXPECT_NE(bad_input_of([&] { parse_rate("rate_limit", bad); }).hint.find("100/s"), std::string::npos) << bad;
}

/* Two processes that share the endpoint; one has ten times as many requests; their threads wake up late. */
TEST(RateLimit, IsNeverExceededInAnyStretchOfTimeAndNearlyReached) {
  std::mt19937 random(7);
  for (RateLimit rate : {RateLimit{1, 10s}, {3, 1s}, {100, 1s}, {600, 60s}, {2000, 1s}, {50'000, 1h}}) {
    int64_t turns = 0;
    RateLimiter gates[] = {RateLimiter(rate), RateLimiter(rate)};
    for (RateLimiter &gate : gates)
      gate.share(&turns, 2);
    std::vector<Time> taken;
    Time end = start + 10 * rate.per;
    for (Time now = start; now < end;) {
      RateLimiter &gate = gates[random() % 11 == 0];
      if (gate.take(now)) {
        taken.push_back(now);
        continue;
      }
      ASSERT_GT(gate.next(now), now);
      now = std::max(gate.next(now), now + 1us) + microseconds(random() % 3000);
    }
    EXPECT_LE(most_within(taken, rate.per), static_cast<size_t>(rate.requests)) << rate.requests;
    EXPECT_GE(taken.size(), static_cast<size_t>(9.4 * static_cast<double>(rate.requests))) << rate.requests;
  }
}

TEST(RateLimit, EachHasItsPartWithoutSharedMemoryAndNoLegacyOfASlowerRate) {
  RateLimiter alone(RateLimit{100, 1s});
  alone.share(nullptr, 4);
  std::vector<Time> taken;
  for (Time now = start; now < start + 10s; now += 1ms)
    if (alone.take(now))
      taken.push_back(now);
  EXPECT_NEAR(static_cast<double>(taken.size()), 250, 10);

  int64_t turns = 0;
  RateLimiter slow(RateLimit{1, 1h}), quick(RateLimit{100, 1s});
  slow.share(&turns, 1);
  quick.share(&turns, 1);
  EXPECT_TRUE(slow.take(start));
  EXPECT_LE(quick.next(start), start + 50ms) << "ALTER SERVER has made it quicker";
  EXPECT_TRUE(quick.take(quick.next(start))) << "it does not move on with the time";
}

TEST(ConcurrencyLimiter, KeepsToTheLimitWhateverTheAnswersTake) {
  for (auto latency : {RateLimiter::Duration(500us), RateLimiter::Duration(300ms)}) {
    Endpoint endpoint(32, RateLimit{50, 1s});
    endpoint.run(10s, latency);
    EXPECT_LE(most_within(endpoint.starts, 1s), 50u);
    EXPECT_GT(endpoint.starts.size(), 470u);
    EXPECT_LE(endpoint.pace.max_held(endpoint.now), 200u) << "no more events than it can send soon";
  }
}

TEST(ConcurrencyLimiter, HoldsNoEventForATurnThatIsFarAway) {
  ConcurrencyLimiter pace(4, RateLimit{1, 1h});
  EXPECT_EQ(pace.max_held(start), 1u);
  EXPECT_TRUE(pace.start(0, start));
  EXPECT_EQ(pace.max_held(start + 1min), 0u);
  EXPECT_EQ(pace.open_at(start + 1min), start + 1h - 2s);
  EXPECT_EQ(pace.max_held(start + 1h - 1s), 1u);
}

TEST(ConcurrencyLimiter, BeginsWithOneTwoFour) {
  Endpoint endpoint(32);
  endpoint.pace.begin_slowly(start);
  std::vector<size_t> rounds;
  for (int round = 0; round < 7; ++round) {
    size_t before = endpoint.starts.size();
    endpoint.run(10ms, 10ms);
    rounds.push_back(endpoint.starts.size() - before);
  }
  EXPECT_EQ(rounds, (std::vector<size_t>{1, 2, 4, 8, 16, 32, 32}));
}

TEST(ConcurrencyLimiter, ARequestThatHangsHoldsUpTheOthersForASecond) {
  Endpoint endpoint(32);
  endpoint.pace.begin_slowly(start);
  endpoint.run(900ms, 1h);
  EXPECT_EQ(endpoint.starts.size(), 1u);
  endpoint.run(200ms, 1h);
  EXPECT_EQ(endpoint.starts.size(), 2u);
  endpoint.run(5s, 1h);
  EXPECT_EQ(endpoint.starts.size(), 32u);
}

/* It accepts eight at a time and refuses every further one. */
TEST(ConcurrencyLimiter, HalvesWhenAskedToAndRisesAgain) {
  Endpoint endpoint(64);
  endpoint.run(30s, 10ms, 8);
  size_t refused = endpoint.refused, asked = endpoint.starts.size();
  EXPECT_LT(refused * 5, asked) << "most of what is sent is taken";
  EXPECT_GT(asked, 1000u);
  EXPECT_LT(endpoint.pace.window(), 32u);
  endpoint.most_open = 0;
  endpoint.run(60s, 10ms);
  EXPECT_EQ(endpoint.most_open, 64u) << "it is well again";
}

/* One response in fifty is a 503: an occasional failure of one of its servers. */
TEST(ConcurrencyLimiter, AFewRefusalsCostLittle) {
  ConcurrencyLimiter pace(32, {});
  Time now = start;
  for (int n = 1; n <= 5000; ++n, now += 1ms) {
    ASSERT_TRUE(pace.start(0, now)) << "its rate is not limited";
    if (n % 50 == 0)
      pace.slow_down(now, now + 1us, true);
    else
      pace.succeeded(pace.window() - 1, now);
    ASSERT_GE(pace.window(), 16u);
  }
}

/* One response in five, whatever its load: slowing down would not help. */
static size_t asked_in_ten_minutes(bool too_many) {
  ConcurrencyLimiter pace(8, {});
  std::minstd_rand chance(1);
  size_t asked = 0;
  for (Time now = start, end = start + 10min; now < end;) {
    if (!pace.start(0, now)) {
      now = pace.next(0, now);
      continue;
    }
    Time began = now;
    now += 3ms;
    asked++;
    if (chance() % 5 == 0)
      pace.slow_down(began, now, too_many);
    else
      pace.succeeded(0, now);
  }
  return asked;
}

TEST(ConcurrencyLimiter, RefusalsByChanceDoNotWearItDown) {
  EXPECT_GT(asked_in_ten_minutes(true), 600u * 8);
  EXPECT_GT(asked_in_ten_minutes(false), 600u * 300);
}

TEST(ConcurrencyLimiter, OneRoundOfRefusalsCountsOnce) {
  ConcurrencyLimiter pace(32, {});
  for (size_t n = 0; n < 32; ++n)
    ASSERT_TRUE(pace.start(n, start));
  for (size_t n = 0; n < 32; ++n)
    pace.slow_down(start, start + 10ms, true);
  EXPECT_LE(pace.window(), 17u);
  EXPECT_GE(pace.window(), 16u);
  EXPECT_FALSE(pace.start(0, start + 11ms)) << "the rate is halved too";
  EXPECT_GT(pace.next(0, start + 11ms), start + 40ms);
  EXPECT_LT(pace.next(0, start + 11ms), start + 200ms);
  EXPECT_TRUE(pace.start(0, start + 200ms));
}

TEST(ConcurrencyLimiter, APauseIsKeptAndNothingIsClaimedForIt) {
  ConcurrencyLimiter pace(4, {});
  pace.pause_until(start + 30s);
  pace.pause_until(start + 10s);
  EXPECT_FALSE(pace.start(0, start + 29s));
  EXPECT_EQ(pace.next(0, start), start + 30s);
  EXPECT_EQ(pace.max_held(start + 29s), 0u);
  EXPECT_TRUE(pace.start(0, start + 30s));
}

TEST(ConcurrencyLimiter, WorkersHaveTheirPartOfTheConcurrency) {
  size_t sum = 0;
  for (size_t worker = 0; worker < 3; ++worker) {
    ConcurrencyLimiter pace(32, {});
    pace.share(worker, 3, nullptr);
    sum += pace.window();
    pace.share(0, 1, nullptr);
    EXPECT_EQ(pace.window(), 32u) << "the others have left";
  }
  EXPECT_EQ(sum, 32u);
  ConcurrencyLimiter pace(1, {});
  pace.share(2, 3, nullptr);
  EXPECT_EQ(pace.window(), 1u);
}

TEST(ConnectionQuota, HogsLeaveSomethingForEverybody) {
  ConnectionQuota share(768);
  size_t hogs[100] = {};
  for (int round = 0; round < 100; ++round)
    for (size_t &has : hogs)
      if (share.may_open(has)) {
        share.opened();
        has++;
      }
  EXPECT_GT(share.total() - share.open(), 10u);
  EXPECT_TRUE(share.may_open(0));
  EXPECT_LE(*std::max_element(hogs, hogs + 100), *std::min_element(hogs, hogs + 100) + 1);

  ConnectionQuota alone(768);
  size_t has = 0;
  for (; alone.may_open(has); ++has)
    alone.opened();
  EXPECT_EQ(has, 256u);

  ConnectionQuota scarce(2);
  scarce.opened();
  EXPECT_TRUE(scarce.may_open(0));
  scarce.opened();
  EXPECT_FALSE(scarce.may_open(0));
}
