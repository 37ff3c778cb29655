/* What the main scan reads next, and where each sink's cursor stands after a read. */
#include "dispatch/main_scan.h"

#include <gtest/gtest.h>

using namespace dispatch;

namespace {

class DispatchMainScan : public testing::Test {
protected:
  void SetUp() override {
    round.free_events = 1000;
    round.free_bytes = 1000;
  }

  SinkCursor *add(int64_t position, int free_places = 10) {
    RoundSink *sink = &added[sinks.all().size()];
    sinks.add(sink);
    sink->cursor->passed(position);
    sink->cursor->set_free_places(free_places, 1000);
    return sink->cursor;
  }

  /* The position after which the next read begins; -1 = there is none. */
  int64_t begin_read() { return scan.begin_read(round, &read) ? read.after : -1; }

  Round round = {};
  RoundSink added[4] = {};
  RoundSinks sinks;
  MainScan scan{sinks};
  MainRead read = {};
};

TEST_F(DispatchMainScan, OneReadServesAllSinksThatHaveComeEquallyFar) {
  SinkCursor *first = add(100), *second = add(100);
  EXPECT_EQ(begin_read(), 100);
  EXPECT_TRUE(first->reading());
  EXPECT_TRUE(second->reading());
  EXPECT_TRUE(scan.row_read(105, RowVerdict::CLAIM, first));
  EXPECT_TRUE(scan.row_read(107, RowVerdict::SKIP, second));
  scan.end_read();
  for (const SinkCursor *cursor : {first, second}) {
    EXPECT_EQ(cursor->position(), 107) << "rows of other sinks are passed as well";
    EXPECT_FALSE(cursor->reading());
    EXPECT_FALSE(cursor->has_backlog());
  }
  EXPECT_EQ(begin_read(), -1);
  EXPECT_FALSE(scan.more());
}

TEST_F(DispatchMainScan, ASinkTakesPartFromItsOwnCursorOn) {
  SinkCursor *ahead = add(300), *behind = add(100), *between = add(200);
  EXPECT_EQ(begin_read(), 100);
  EXPECT_TRUE(scan.row_read(150, RowVerdict::SKIP, ahead));
  EXPECT_TRUE(scan.row_read(250, RowVerdict::CLAIM, between));
  scan.end_read();
  EXPECT_EQ(behind->position(), 250);
  EXPECT_EQ(between->position(), 250);
  EXPECT_EQ(ahead->position(), 300) << "the read has not come so far, and there are no more rows";
  for (const SinkCursor *cursor : {ahead, behind, between})
    EXPECT_FALSE(cursor->has_backlog());
  EXPECT_EQ(begin_read(), -1) << "one read for all";
}

TEST_F(DispatchMainScan, WhereNoSinkReadsForManyRowsAnotherReadBegins) {
  SinkCursor *full = add(0, 300), *far = add(1000000, 300);
  begin_read();
  EXPECT_TRUE(scan.row_read(1, RowVerdict::STOP, full));
  for (int i = 2; i < READ_MIN; i++)
    EXPECT_TRUE(scan.row_read(i, RowVerdict::SKIP, full)) << "the next cursor may be near";
  EXPECT_FALSE(scan.row_read(READ_MIN, RowVerdict::SKIP, full));
  scan.end_read();
  EXPECT_EQ(full->position(), 0);
  EXPECT_TRUE(full->has_backlog());
  EXPECT_EQ(begin_read(), 1000000);
  EXPECT_FALSE(full->reading()) << "it has had its read";
  EXPECT_TRUE(scan.row_read(1000001, RowVerdict::CLAIM, far));
  scan.end_read();
  EXPECT_EQ(far->position(), 1000001);
  EXPECT_EQ(begin_read(), -1);
  EXPECT_FALSE(scan.more());
}

TEST_F(DispatchMainScan, ASinkThatAFullReadDoesNotReachHasAReadOfItsOwn) {
  SinkCursor *first = add(0, 1), *second = add(READ_MIN, 1), *third = add(READ_MIN + 50, 1);
  begin_read();
  ASSERT_EQ(read.limit, READ_MIN);
  for (int i = 1; i <= READ_MIN; i++)
    EXPECT_TRUE(scan.row_read(i, RowVerdict::SKIP, nullptr));
  scan.end_read();
  EXPECT_EQ(first->position(), READ_MIN);
  for (const SinkCursor *cursor : {first, second, third})
    EXPECT_TRUE(cursor->has_backlog());
  EXPECT_EQ(begin_read(), READ_MIN + 50) << "the second stands where the first does, and reads on in the next round";
  EXPECT_FALSE(second->reading());
  scan.end_read();
  scan.begin_round();
  EXPECT_EQ(begin_read(), READ_MIN);
  EXPECT_TRUE(first->reading());
  EXPECT_TRUE(second->reading());
}

TEST_F(DispatchMainScan, WithoutRoomNothingIsRead) {
  add(100, 0);
  SinkCursor *late = add(100);
  late->late_commit(7, 50);
  EXPECT_EQ(begin_read(), -1) << "rows of a late transaction come first";
  add(200);
  round.free_events = 0;
  EXPECT_EQ(begin_read(), -1);
  round.free_events = 1;
  round.free_bytes = 0;
  EXPECT_EQ(begin_read(), -1);
  round.free_bytes = 1;
  EXPECT_EQ(begin_read(), 200);
}

TEST_F(DispatchMainScan, RowsThatAreNotReadForLackOfRoomAreABacklog) {
  SinkCursor *full = add(100, 0), *other = add(100);
  begin_read();
  EXPECT_TRUE(full->has_backlog()) << "the sink takes nothing";
  scan.row_read(105, RowVerdict::SKIP, nullptr);
  scan.end_read();
  EXPECT_FALSE(other->has_backlog());
  scan.begin_round();
  round.free_events = 0;
  EXPECT_EQ(begin_read(), -1);
  EXPECT_TRUE(other->has_backlog()) << "the worker takes nothing";
}

TEST_F(DispatchMainScan, ASinkWhoseReadFindsNoRoomAnymoreHasABacklog) {
  SinkCursor *lags = add(100), *other = add(1000000);
  begin_read();
  scan.row_read(101, RowVerdict::STOP, lags);
  for (int i = 1; i < READ_MIN; i++)
    scan.row_read(101 + i, RowVerdict::SKIP, lags);
  scan.end_read();
  round.free_events = 0;
  EXPECT_EQ(begin_read(), -1);
  EXPECT_TRUE(other->has_backlog());
}

TEST_F(DispatchMainScan, ASinkThatHasNoRoomForARowStaysBeforeIt) {
  SinkCursor *full = add(100), *other = add(100);
  begin_read();
  EXPECT_TRUE(scan.row_read(105, RowVerdict::CLAIM, full));
  EXPECT_TRUE(scan.row_read(106, RowVerdict::SKIP, other));
  EXPECT_TRUE(scan.row_read(107, RowVerdict::STOP, full));
  EXPECT_FALSE(full->reading());
  EXPECT_TRUE(full->has_backlog());
  EXPECT_TRUE(scan.row_read(109, RowVerdict::CLAIM, other));
  EXPECT_FALSE(scan.row_read(110, RowVerdict::STOP, other)) << "nobody reads on";
  scan.end_read();
  EXPECT_EQ(full->position(), 105);
  EXPECT_EQ(other->position(), 109);
}

TEST_F(DispatchMainScan, BeforeAnEventThatIsToBeRoutedTheSinksThatTakeItStop) {
  SinkCursor *taker = add(100), *other = add(100);
  taker->wait_for_routing(107);
  begin_read();
  EXPECT_TRUE(scan.row_read(107, RowVerdict::STOP, nullptr));
  EXPECT_FALSE(taker->reading());
  EXPECT_EQ(taker->position(), 106);
  EXPECT_FALSE(taker->has_backlog()) << "it waits";
  EXPECT_TRUE(other->reading());
  other->wait_for_routing(108);
  EXPECT_FALSE(scan.row_read(108, RowVerdict::STOP, nullptr));
  scan.end_read();
  EXPECT_EQ(taker->position(), 106);
  EXPECT_EQ(other->position(), 107);
}

TEST_F(DispatchMainScan, AnEventThatIsToBeRoutedStopsNoSinkThatHasPassedIt) {
  SinkCursor *behind = add(100), *ahead = add(107);
  ahead->wait_for_routing(107);
  begin_read();
  EXPECT_TRUE(scan.row_read(107, RowVerdict::STOP, nullptr));
  EXPECT_TRUE(scan.row_read(108, RowVerdict::CLAIM, ahead));
  scan.end_read();
  EXPECT_EQ(ahead->position(), 108);
  EXPECT_EQ(behind->position(), 108);
}

TEST_F(DispatchMainScan, AFullReadIsFollowedByAnother) {
  SinkCursor *cursor = add(0, 1);
  begin_read();
  ASSERT_EQ(read.limit, READ_MIN);
  for (int i = 1; i <= READ_MIN; i++)
    EXPECT_TRUE(scan.row_read(i, RowVerdict::SKIP, cursor));
  scan.end_read();
  EXPECT_TRUE(scan.more());
  EXPECT_TRUE(cursor->has_backlog());
  scan.begin_round();
  EXPECT_FALSE(scan.more());
  EXPECT_EQ(begin_read(), READ_MIN);
  for (int i = 1; i < READ_MIN; i++)
    scan.row_read(READ_MIN + i, RowVerdict::SKIP, cursor);
  scan.end_read();
  EXPECT_FALSE(scan.more());
  EXPECT_FALSE(cursor->has_backlog());
}

TEST_F(DispatchMainScan, AReadIsTwiceAsLongAsThereIsRoomWithinBounds) {
  add(0, 200), add(0, 300);
  begin_read();
  EXPECT_EQ(read.limit, 1000);
  scan.begin_round();
  round.free_events = 400;
  begin_read();
  EXPECT_EQ(read.limit, 800);
  scan.begin_round();
  round.free_events = 1000000;
  sinks.all()[0]->cursor->set_free_places(1000000, 1000);
  begin_read();
  EXPECT_EQ(read.limit, READ_MAX);
}

TEST(DispatchReadLimit, AScanOfOneSinkReadsOneRowMoreThanItCanClaim) {
  EXPECT_EQ(dispatch::read_limit(1), READ_MIN);
  EXPECT_EQ(dispatch::read_limit(500), 501);
  EXPECT_EQ(dispatch::read_limit(1000000), READ_MAX);
}

}  // namespace
