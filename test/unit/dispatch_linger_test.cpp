#include "dispatch/linger.h"

#include <gtest/gtest.h>

using namespace dispatch;

static const Moment START = {3'600'000'000};

/* Rounds of 10 ms that claim `events` each. Returns the start of the last one. */
static Moment run(Linger *linger, int rounds, int events) {
  Moment now = START;
  linger->claimed(now, 0, false); /* the first window */
  for (int i = 0; i < rounds; i++) {
    now = moment_after(now, 10);
    linger->claimed(now, events, false);
  }
  return now;
}

TEST(DispatchLinger, ClaimsAtOnceBelowTwoThousandEventsPerSecond) {
  Linger linger;
  EXPECT_EQ(linger.until(), MOMENT_NONE) << "before the first round";
  run(&linger, 4, 19); /* 1,900/s */
  EXPECT_EQ(linger.until(), MOMENT_NONE);
}

TEST(DispatchLinger, WaitsTwoMillisecondsForEachThousandPerSecond) {
  Linger linger;
  Moment last = run(&linger, 4, 20); /* 2,000/s */
  EXPECT_EQ(linger.until(), moment_after(last, 4));
  linger = Linger();
  last = run(&linger, 4, 70);
  EXPECT_EQ(linger.until(), moment_after(last, 14));
}

TEST(DispatchLinger, WaitsTwentyMillisecondsAtMost) {
  Linger linger;
  Moment last = run(&linger, 4, 1000); /* 100,000/s */
  EXPECT_EQ(linger.until(), moment_after(last, 20));
}

TEST(DispatchLinger, DoesNotWaitWhileMoreCanBeClaimed) {
  Linger linger;
  Moment last = run(&linger, 4, 1000);
  linger.claimed(moment_after(last, 10), 1000, true);
  EXPECT_EQ(linger.until(), MOMENT_NONE);
}

TEST(DispatchLinger, OneTransactionOfManyEventsIsNoLoad) {
  Linger linger;
  run(&linger, 1, 0);
  linger.claimed(moment_after(START, 15), 10000, false);
  EXPECT_EQ(linger.until(), MOMENT_NONE) << "the window of 20 ms is not over";
}

TEST(DispatchLinger, ForgetsTheRateOfAFormerWindow) {
  Linger linger;
  Moment last = run(&linger, 4, 1000);
  linger.claimed(moment_after(last, 1000), 1, false);
  EXPECT_EQ(linger.until(), MOMENT_NONE);
}
