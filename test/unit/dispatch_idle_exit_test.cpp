#include "dispatch/idle_exit.h"

#include <gtest/gtest.h>

using namespace dispatch;

namespace {

const Moment IDLE_SINCE = {3'600'000'000};
const Idleness IDLE = {true, 5000, false}, BUSY = {false, 5000, false};

Moment at(int64_t ms) {
  return moment_after(IDLE_SINCE, ms);
}

TEST(DispatchIdleExit, AWorkerIsIdleForTheWholeTimeout) {
  IdleExit exit;
  EXPECT_FALSE(exit.idle_for_long(IDLE_SINCE, IDLE));
  EXPECT_EQ(exit.next_moment(IDLE_SINCE, IDLE), at(5000));
  EXPECT_FALSE(exit.idle_for_long(at(4999), IDLE));
  EXPECT_FALSE(exit.idle_for_long(at(5000), BUSY)) << "and begins anew";
  EXPECT_TRUE(exit.busy());
  EXPECT_FALSE(exit.idle_for_long(at(5001), IDLE));
  EXPECT_TRUE(exit.idle_for_long(at(10001), IDLE));
  EXPECT_FALSE(exit.busy());
}

TEST(DispatchIdleExit, ItLeavesAtOnceWhileOthersWaitForASlot) {
  IdleExit exit;
  EXPECT_TRUE(exit.idle_for_long(IDLE_SINCE, {true, 5000, true}));
}

TEST(DispatchIdleExit, WithoutATimeoutItNeverLeaves) {
  IdleExit exit;
  EXPECT_FALSE(exit.idle_for_long(IDLE_SINCE, {true, 0, true}));
  EXPECT_TRUE(exit.busy());
}

TEST(DispatchIdleExit, ItAsksByItselfOnlyOnce) {
  IdleExit exit;
  EXPECT_EQ(exit.next_moment(IDLE_SINCE, IDLE), MOMENT_NEVER) << "busy";
  exit.idle_for_long(IDLE_SINCE, IDLE);
  EXPECT_EQ(exit.next_moment(at(4999), IDLE), at(5000));
  EXPECT_EQ(exit.next_moment(at(5000), IDLE), MOMENT_NEVER) << "else the loop would spin";
}

TEST(DispatchIdleExit, LeavingForLessThanASecondOrTheTimeoutIsNotWorthIt) {
  IdleExit exit;
  const Now now = {IDLE_SINCE, 1'000'000'000};
  Moment until;
  const Idleness scarce = {true, 5000, true};
  EXPECT_FALSE(exit.worth_it(now, IDLE, at(4999), WALL_TIME_NEVER, &until));
  EXPECT_TRUE(exit.worth_it(now, IDLE, at(5000), WALL_TIME_NEVER, &until));
  EXPECT_EQ(until, at(5000));
  EXPECT_FALSE(exit.worth_it(now, scarce, at(999), WALL_TIME_NEVER, &until));
  EXPECT_TRUE(exit.worth_it(now, scarce, at(1000), WALL_TIME_NEVER, &until));
}

TEST(DispatchIdleExit, AnEventThatIsDueSoonKeepsTheWorker) {
  IdleExit exit;
  const Now now = {IDLE_SINCE, 1'000'000'000};
  Moment until;
  EXPECT_FALSE(exit.worth_it(now, IDLE, MOMENT_NEVER, now.wall + 4'999'999, &until));
  EXPECT_TRUE(exit.worth_it(now, IDLE, MOMENT_NEVER, now.wall + 5'000'000, &until));
  EXPECT_EQ(until, at(60 * 60 * 1000)) << "the wall clock may be set: the launcher follows it by itself";
}

TEST(DispatchIdleExit, AWorkerComesOnceAnHour) {
  IdleExit exit;
  Moment until;
  EXPECT_TRUE(exit.worth_it({IDLE_SINCE, 0}, IDLE, MOMENT_NEVER, WALL_TIME_NEVER, &until));
  EXPECT_EQ(until, at(60 * 60 * 1000));
}

}  // namespace
