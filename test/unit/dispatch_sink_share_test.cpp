/* Places in flight among the sinks of a worker. */
#include "dispatch/sink_share.h"

#include <memory>

#include <gtest/gtest.h>

#include "dispatch/dispatch.h"

using dispatch::RoundSink;
using dispatch::SinkShares;

namespace {

RoundSink sink_with(int in_flight, int unrecorded, int left = 0, int left_alone = 0, int credit = 1000) {
  RoundSink sink = {};
  sink.in_flight = in_flight;
  sink.unrecorded = unrecorded;
  sink.left = left;
  sink.left_alone = left_alone;
  sink.credit = credit;
  return sink;
}

TEST(DispatchSinkShare, AnIdleSinkKeepsAQuarterOfItsShare) {
  const RoundSink idle = sink_with(0, 0);
  const RoundSink busy = sink_with(500, 375); /* its ended events are not recorded yet */
  SinkShares shares(1000, 2);
  shares.add(busy);
  shares.add(idle);
  EXPECT_EQ(shares.may_claim(busy), 0);
  EXPECT_EQ(shares.may_claim(idle), 125);

  const RoundSink ended = sink_with(0, 875);
  SinkShares later(1000, 2);
  later.add(ended);
  later.add(idle);
  EXPECT_EQ(later.may_claim(ended), 0) << "it would take what is kept for the other";
}

TEST(DispatchSinkShare, EndedEventsDoNotCountInTheShareUntilARecordingHasLeftThem) {
  const RoundSink idle = sink_with(0, 0), busy = sink_with(100, 300);
  SinkShares shares(1000, 2);
  shares.add(busy);
  shares.add(idle);
  EXPECT_EQ(shares.may_claim(busy), 400);
  EXPECT_EQ(shares.may_claim(idle), 200) << "the rest; never more than all places together";

  SinkShares full(1000, 2);
  full.add(busy);
  full.add(idle);
  EXPECT_EQ(full.may_claim(sink_with(100, 300, 0, 0, 7)), 7) << "the credit";
  EXPECT_EQ(full.may_claim(idle), 500) << "which left more for the other";

  SinkShares left(1000, 2);
  left.add(busy);
  left.add(idle);
  EXPECT_EQ(left.may_claim(sink_with(100, 300, 300)), 100);
}

TEST(DispatchSinkShare, ASinkWhoseRecordingIsStuckSendsOneAtATime) {
  RoundSink stuck = sink_with(0, 3, 3, 3);
  dispatch::Recording::begin_stuck(&stuck.events);
  SinkShares shares(1000, 2);
  shares.add(stuck);
  shares.add(sink_with(0, 0));
  EXPECT_EQ(shares.may_claim(stuck), 1);
  stuck.left_alone = 2;
  EXPECT_EQ(SinkShares(1000, 2).may_claim(stuck), 0) << "one is tried";
  stuck.left_alone = 3;
  stuck.in_flight = 1;
  EXPECT_EQ(SinkShares(1000, 2).may_claim(stuck), 0);
}

TEST(DispatchSinkShare, EverySinkGetsAtLeastOnePlace) {
  const RoundSink idle = sink_with(0, 0), ended = sink_with(0, 1);
  SinkShares shares(2, 2);
  shares.add(ended);
  shares.add(idle);
  EXPECT_EQ(shares.may_claim(ended), 0);
  EXPECT_EQ(shares.may_claim(idle), 1);
}

TEST(DispatchSinkShare, ASinkWithABacklogHasTheFirstChoice) {
  std::unique_ptr<dispatch::Dispatch> decisions{dispatch::create()};
  RoundSink calm = sink_with(0, 0), behind = sink_with(0, 0), closed = sink_with(0, 0, 0, 0, 0);
  for (RoundSink *sink : {&calm, &behind, &closed})
    decisions->sinks.add(sink);
  behind.cursor->set_has_backlog(true);
  decisions->give_places(300, 3000);
  EXPECT_EQ(behind.cursor->free_places(), 100);
  EXPECT_EQ(calm.cursor->free_places(), 100);
  EXPECT_EQ(closed.cursor->free_places(), 0);
  EXPECT_FALSE(decisions->places_exhausted);
  calm.unrecorded = behind.unrecorded = 80; /* 115 places are free beside the 25 that are kept for the third */
  decisions->give_places(300, 3000);
  EXPECT_EQ(behind.cursor->free_places(), 100) << "its whole share";
  EXPECT_EQ(calm.cursor->free_places(), 15);
  EXPECT_TRUE(decisions->sinks.any_starved());
  behind.stopped = true;
  EXPECT_FALSE(decisions->sinks.any_starved()) << "its rows wait until it is resumed";
}

}  // namespace
