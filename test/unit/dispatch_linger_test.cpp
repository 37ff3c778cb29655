#include "dispatch/linger.h"

#include <gtest/gtest.h>

using namespace dispatch;

static const Moment START = {3'600'000'000};

/* A round that takes no time. */
static void claimed(Linger *linger, Moment at, int events, bool more) {
  linger->claimed(at, at, events, 0, more);
}

/* Rounds of 10 ms that claim `events` each. Returns the start of the last one. */
static Moment run(Linger *linger, int rounds, int events) {
  Moment now = START;
  claimed(linger, now, 0, false); /* the first window */
  for (int i = 0; i < rounds; i++) {
    now = moment_after(now, 10);
    claimed(linger, now, events, false);
  }
  return now;
}

TEST(DispatchLinger, ClaimsAtOnceBelowTwoThousandEventsPerSecond) {
  Linger linger;
  EXPECT_EQ(linger.until(0), MOMENT_NONE) << "before the first round";
  run(&linger, 4, 19); /* 1,900/s */
  EXPECT_EQ(linger.until(0), MOMENT_NONE);
}

TEST(DispatchLinger, WaitsTwoMillisecondsForEachThousandPerSecond) {
  Linger linger;
  Moment last = run(&linger, 4, 20); /* 2,000/s */
  EXPECT_EQ(linger.until(0), moment_after(last, 4));
  linger = Linger();
  last = run(&linger, 4, 70);
  EXPECT_EQ(linger.until(0), moment_after(last, 14));
}

TEST(DispatchLinger, WaitsTwentyMillisecondsAtMost) {
  Linger linger;
  Moment last = run(&linger, 4, 1000); /* 100,000/s */
  EXPECT_EQ(linger.until(0), moment_after(last, 20));
}

TEST(DispatchLinger, DoesNotWaitWhileMoreCanBeClaimed) {
  Linger linger;
  Moment last = run(&linger, 4, 1000);
  claimed(&linger, moment_after(last, 10), 1000, true);
  EXPECT_EQ(linger.until(0), MOMENT_NONE);
}

TEST(DispatchLinger, OneTransactionOfManyEventsIsNoLoad) {
  Linger linger;
  run(&linger, 1, 0);
  claimed(&linger, moment_after(START, 15), 10000, false);
  EXPECT_EQ(linger.until(0), MOMENT_NONE) << "the window of 20 ms is not over";
}

TEST(DispatchLinger, ForgetsTheRateOfAFormerWindow) {
  Linger linger;
  Moment last = run(&linger, 4, 1000);
  claimed(&linger, moment_after(last, 1000), 1, false);
  EXPECT_EQ(linger.until(0), MOMENT_NONE);
}

TEST(DispatchLinger, RestsForAsLongAsALongRoundTook) {
  Linger linger;
  const Moment ended = moment_after(START, 7);
  linger.claimed(START, ended, 5, 100, true);
  EXPECT_EQ(linger.until(100), moment_after(ended, 7)) << "though more can be claimed";
  EXPECT_EQ(linger.until(76), moment_after(ended, 7));
  EXPECT_EQ(linger.until(75), MOMENT_NONE) << "a quarter has ended";
  linger.claimed(START, moment_after(START, 500), 5, 100, true);
  EXPECT_EQ(linger.until(100), moment_after(START, 520)) << "20 ms at most";
  linger.claimed(START, moment_after(START, 1), 5, 100, true);
  EXPECT_EQ(linger.until(100), MOMENT_NONE) << "a short round";
}

TEST(DispatchLinger, DoesNotRestWhileTheSinksHaveFewEvents) {
  Linger linger;
  linger.claimed(START, moment_after(START, 7), 3, 3, true);
  EXPECT_EQ(linger.until(3), MOMENT_NONE);
  EXPECT_EQ(linger.until(0), MOMENT_NONE);
}
