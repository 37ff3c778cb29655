/* Places in flight among the sinks of a worker. */
#include "dispatch/sink_share.h"

#include <gtest/gtest.h>

using dispatch::SinkHeld;
using dispatch::SinkInFlight;
using dispatch::SinkShares;

TEST(DispatchSinkShare, AnIdleSinkKeepsAQuarterOfItsShare) {
  SinkInFlight none{};
  SinkShares shares(1000, 2);
  shares.add(500, 375); /* busy: its ended events are not recorded yet */
  shares.add(0, 0);
  EXPECT_EQ(shares.may_claim({&none, 500, 375, 0, 0}, 1000), 0);
  EXPECT_EQ(shares.may_claim({&none, 0, 0, 0, 0}, 1000), 125);

  SinkShares later(1000, 2);
  later.add(0, 875);
  later.add(0, 0);
  EXPECT_EQ(later.may_claim({&none, 0, 875, 0, 0}, 1000), 0) << "it would take what is kept for the other";
}

TEST(DispatchSinkShare, EndedEventsDoNotCountInTheShareUntilARecordingHasLeftThem) {
  SinkInFlight none{};
  SinkShares shares(1000, 2);
  shares.add(100, 300);
  shares.add(0, 0);
  EXPECT_EQ(shares.may_claim({&none, 100, 300, 0, 0}, 1000), 400);
  EXPECT_EQ(shares.may_claim({&none, 0, 0, 0, 0}, 1000), 200) << "the rest; never more than all places together";

  SinkShares full(1000, 2);
  full.add(100, 300);
  full.add(0, 0);
  EXPECT_EQ(full.may_claim({&none, 100, 300, 0, 0}, 7), 7) << "the credit";
  EXPECT_EQ(full.may_claim({&none, 0, 0, 0, 0}, 1000), 500) << "which left more for the other";

  SinkShares left(1000, 2);
  left.add(100, 300);
  left.add(0, 0);
  EXPECT_EQ(left.may_claim({&none, 100, 300, 300, 0}, 1000), 100);
}

TEST(DispatchSinkShare, ASinkWhoseRecordingIsStuckSendsOneAtATime) {
  SinkInFlight stuck{};
  dispatch::Recording::begin_stuck(&stuck);
  SinkShares shares(1000, 2);
  shares.add(0, 3);
  shares.add(0, 0);
  EXPECT_EQ(shares.may_claim({&stuck, 0, 3, 3, 3}, 1000), 1);
  EXPECT_EQ(SinkShares(1000, 2).may_claim({&stuck, 0, 3, 3, 2}, 1000), 0) << "one is tried";
  EXPECT_EQ(SinkShares(1000, 2).may_claim({&stuck, 1, 3, 3, 3}, 1000), 0);
}

TEST(DispatchSinkShare, EverySinkGetsAtLeastOnePlace) {
  SinkInFlight none{};
  SinkShares shares(2, 2);
  shares.add(0, 1);
  shares.add(0, 0);
  EXPECT_EQ(shares.may_claim({&none, 0, 1, 0, 0}, 1000), 0);
  EXPECT_EQ(shares.may_claim({&none, 0, 0, 0, 0}, 1000), 1);
}
