#include <algorithm>
#include <gtest/gtest.h>

#include "delivery/delivery.h"

namespace {

struct BadPolicy {
  const char *policy;
  const char *detail;
};

TEST(Retry, ExponentialDoublesUpToTheLongest) {
  const char *policy = "100ms..5min";
  const int64_t expected[] = {100,   200,   400,   800,    1600,   3200,   6400,
                              12800, 25600, 51200, 102400, 204800, 300000, 300000};
  int attempts = 1;
  for (int64_t delay : expected) {
    EXPECT_EQ(ob_retry_delay_ms(policy, attempts, false, 0), delay - delay / 2);
    EXPECT_EQ(ob_retry_delay_ms(policy, attempts, false, static_cast<uint64_t>(delay / 2)), delay);
    for (uint64_t random : {1ull, 12345ull, 0xffffffffffffffffull}) {
      EXPECT_GE(ob_retry_delay_ms(policy, attempts, false, random), delay / 2);
      EXPECT_LE(ob_retry_delay_ms(policy, attempts, false, random), delay);
    }
    attempts++;
  }
  EXPECT_LE(ob_retry_delay_ms(policy, 2'000'000'000, false, 7), 300'000);
}

TEST(Retry, StepsAreTakenOneByOneAndTheLastRepeats) {
  const char *policy = "15s*3, 5m*2,1h";
  const int64_t expected[] = {15'000, 15'000, 15'000, 300'000, 300'000, 3'600'000, 3'600'000, 3'600'000};
  int attempts = 1;
  for (int64_t delay : expected) {
    EXPECT_EQ(ob_retry_delay_ms(policy, attempts, false, 0), delay);
    EXPECT_EQ(ob_retry_delay_ms(policy, attempts, false, static_cast<uint64_t>(delay / 10)), delay * 11 / 10);
    EXPECT_LE(ob_retry_delay_ms(policy, attempts++, false, 0xffffffffffffffffull), delay * 11 / 10);
  }
  EXPECT_EQ(ob_retry_delay_ms("0, 5s", 1, false, 99), 0);
}

TEST(Retry, ASlowOneTakesAMinuteOrTheLongestDelay) {
  struct {
    const char *policy;
    int attempts;
    int64_t least;
  } const expected[] = {
      {"5s, 5m, 30m", 1, 60'000},   {"5s, 5m, 30m", 2, 300'000}, {"100ms..5min", 1, 60'000},
      {"100ms..5min", 20, 300'000}, {"50ms..200ms", 1, 200},     {"1s*3, 2s", 1, 2'000},
  };
  for (auto &[policy, attempts, least] : expected) {
    EXPECT_EQ(ob_retry_delay_ms(policy, attempts, true, 0), least) << policy;
    EXPECT_EQ(ob_retry_delay_ms(policy, attempts, true, static_cast<uint64_t>(least / 10)), least * 11 / 10);
    EXPECT_LE(ob_retry_delay_ms(policy, attempts, true, 0xffffffffffffffffull), least * 11 / 10) << policy;
  }
}

/* Without jitter, events that failed together would be retried together; with too much, too late. */
TEST(Retry, JitterReachesBothEndsOfEveryStepAndNoFarther) {
  const char *policy = "100ms..5min";
  for (int attempts = 1; attempts <= 20; attempts++) {
    int64_t full = std::min<int64_t>(attempts < 13 ? 100 << (attempts - 1) : 300'000, 300'000);
    int64_t least = full, most = 0, sum = 0;
    for (uint64_t i = 0; i < 20'000; i++) {
      int64_t delay = ob_retry_delay_ms(policy, attempts, false, i * 0x9e3779b97f4a7c15ull >> 16);
      least = std::min(least, delay);
      most = std::max(most, delay);
      sum += delay;
    }
    EXPECT_GE(least, full - full / 2);
    EXPECT_LE(most, full);
    EXPECT_LT(least, full * 52 / 100 + 1) << attempts;
    EXPECT_GT(most, full * 98 / 100 - 1) << attempts;
    EXPECT_NEAR(static_cast<double>(sum) / 20'000, static_cast<double>(full) * 0.75,
                static_cast<double>(full) * 0.02);
  }
}

TEST(Retry, GoodPolicies) {
  ob_error error;
  for (const char *policy : {"1s..10m", "1s..1s", " 1s .. 10 m ", "5s", "0,5s,5min,30min,2h,5h,10h,14h,20h,24h"})
    EXPECT_TRUE(ob_check_retry(policy, &error)) << policy << ": " << error.message;
}

TEST(Retry, BadPoliciesSayWhy) {
  const BadPolicy bad[] = {
      {"", "A retry policy is"},
      {"exponential 1s..5s", "Expected a duration"},
      {"1s..5s..9s", "Expected a duration"},
      {"1s..5s, 9s", "Expected a duration"},
      {"linear 5s..6s", "Expected a duration"},
      {"5s..1s", "The longest delay is shorter than the first."},
      {"0..1s", "Expected a duration from 1ms to 7d with a unit: ms, s, min (or m), h, d."},
      {"15s*0", "Expected a whole number from 1 to 1000."},
      {"15*3", "Expected a duration"},
      {"15s,,5m", "A retry policy is"},
      {"*3", "A retry policy is"},
  };
  for (const BadPolicy &each : bad) {
    ob_error error;
    ASSERT_FALSE(ob_check_retry(each.policy, &error)) << each.policy;
    EXPECT_EQ(error.kind, OB_BAD_VALUE);
    EXPECT_STREQ(error.subject, "retry");
    EXPECT_EQ(std::string(error.message).find("invalid value for option \"retry\": "), 0u) << error.message;
    EXPECT_EQ(std::string(error.detail).find(each.detail), 0u) << each.policy << ": " << error.detail;
    EXPECT_NE(std::string(error.hint).find("'15s*3, 5min*5, 1h'"), std::string::npos)
        << each.policy << ": " << error.hint;
  }
}

}  // namespace
