/* How far the rows of a sink were read. */
#include "dispatch/sink_cursor.h"

#include <memory>

#include <gtest/gtest.h>

#include "dispatch/dispatch.h"

using namespace dispatch;

namespace {

constexpr WallTime CURSOR_NOW = 1'000'000;

/* ---- rows with a time of their own ---------------------------------------------------------------------------- */

TEST(DispatchDueCursor, ItBeginsWithTheEarliestTime) {
  DueCursor due;
  due.passed(CURSOR_NOW, 7);
  due.restart();
  EXPECT_EQ(due.after(), WALL_TIME_BEGIN);
  EXPECT_EQ(due.after_position(), 0);
  EXPECT_EQ(due.next(), WALL_TIME_BEGIN) << "what is due is not known: it is read at once";
}

TEST(DispatchDueCursor, AReadTellsWhenTheNextOneIsWorthIt) {
  DueCursor due;
  due.begin_read();
  EXPECT_EQ(due.next(), WALL_TIME_NEVER) << "all rows were read, and no other is expected";
  due.passed(CURSOR_NOW, 7);
  EXPECT_EQ(due.after(), CURSOR_NOW);
  EXPECT_EQ(due.after_position(), 7);
  due.full();
  EXPECT_EQ(due.next(), CURSOR_NOW) << "at once";
  due.begin_read();
  due.stop_before(CURSOR_NOW + 50);
  EXPECT_EQ(due.next(), CURSOR_NOW + 50);
  EXPECT_EQ(due.after(), CURSOR_NOW);
}

TEST(DispatchDueCursor, TheEarliestRowThatIsExpectedCounts) {
  DueCursor due;
  due.begin_read();
  due.passed(CURSOR_NOW, 7);
  due.expect(CURSOR_NOW + 20);
  due.expect(CURSOR_NOW + 10);
  due.expect(CURSOR_NOW + 30);
  EXPECT_EQ(due.next(), CURSOR_NOW + 10);
  EXPECT_EQ(due.after(), CURSOR_NOW);
  due.expect(CURSOR_NOW);
  EXPECT_EQ(due.next(), CURSOR_NOW);
  due.begin_round();
  EXPECT_EQ(due.next(), CURSOR_NOW);
  EXPECT_EQ(due.after(), CURSOR_NOW - 1) << "the clock was set back: the row is found by a new read";
}

/* A draining key comes across a marked row that is not due. The round takes the mark away, but its read of due rows,
 * which follows, sees the mark still. */
TEST(DispatchDueCursor, ARowThatIsExpectedBeforeTheReadOfItsRoundIsFoundByTheNext) {
  DueCursor due;
  due.begin_round();
  due.expect(CURSOR_NOW + 20);
  due.begin_read();
  due.passed(CURSOR_NOW + 30, 7);
  EXPECT_EQ(due.next(), CURSOR_NOW + 20);
  due.begin_round();
  EXPECT_EQ(due.next(), CURSOR_NOW + 20);
  EXPECT_EQ(due.after(), CURSOR_NOW + 19);
  due.begin_read();
  EXPECT_EQ(due.next(), WALL_TIME_NEVER);
}

TEST(DispatchDueCursor, ARollBackPassesNothingAndForgetsNothing) {
  DueCursor due;
  due.begin_read();
  due.passed(CURSOR_NOW, 7);
  due.stop_before(CURSOR_NOW + 50);
  due.begin_round();
  due.begin_read();
  due.passed(CURSOR_NOW + 50, 9);
  due.roll_back_round();
  EXPECT_EQ(due.after(), CURSOR_NOW);
  EXPECT_EQ(due.after_position(), 7);
  EXPECT_EQ(due.next(), CURSOR_NOW + 50);
  due.begin_round();
  due.expect(CURSOR_NOW + 20);
  due.roll_back_round();
  EXPECT_EQ(due.next(), CURSOR_NOW + 20);
}

/* ---- late transactions ---------------------------------------------------------------------------------------- */

TEST(DispatchLateTransactions, OneIsReadAfterTheOther) {
  LateTransactions late;
  EXPECT_TRUE(late.empty());
  EXPECT_EQ(late.lowest(), POSITION_NONE);
  late.add(101, 50);
  late.add(102, 50);
  EXPECT_EQ(late.first().xid, 101U);
  EXPECT_EQ(late.first().after, 0);
  EXPECT_EQ(late.first().upto, 50);
  late.first_read(20, false);
  EXPECT_EQ(late.first().xid, 101U);
  EXPECT_EQ(late.first().after, 20);
  EXPECT_EQ(late.lowest(), 1) << "the other one's first row";
  late.first_read(40, true);
  EXPECT_EQ(late.first().xid, 102U);
  late.first_read(50, true);
  EXPECT_TRUE(late.empty());
  EXPECT_EQ(late.lowest(), POSITION_NONE);
}

TEST(DispatchLateTransactions, ARollBackReadsAgainWhatTheRoundHasReadAndForgetsWhatItHasFound) {
  LateTransactions late;
  late.add(101, 50);
  late.add(102, 50);
  late.first_read(20, false);
  late.begin_round();
  late.add(103, 60);
  late.first_read(50, true);
  late.first_read(50, true);
  EXPECT_EQ(late.first().xid, 103U);
  late.roll_back_round();
  EXPECT_EQ(late.first().xid, 101U);
  EXPECT_EQ(late.first().after, 20);
  late.first_read(50, true);
  EXPECT_EQ(late.first().after, 0);
  late.first_read(50, true);
  EXPECT_TRUE(late.empty()) << "103 is found again";
}

TEST(DispatchLateTransactions, TheNextRoundGoesOnWhereTheLastOneStopped) {
  LateTransactions late;
  late.add(101, 50);
  late.add(102, 50);
  late.begin_round();
  late.first_read(50, true);
  late.first_read(10, false);
  late.begin_round();
  late.roll_back_round();
  EXPECT_EQ(late.first().xid, 102U);
  EXPECT_EQ(late.first().after, 10);
  late.clear();
  EXPECT_TRUE(late.empty());
  late.roll_back_round();
  EXPECT_TRUE(late.empty());
}

/* ---- the cursor ------------------------------------------------------------------------------------------------ */

class DispatchSinkCursor : public testing::Test {
protected:
  void SetUp() override {
    cursor.restart(CURSOR_NOW);
    cursor.set_free_places(10, 1000);
    read_to(100);
    cursor.due.begin_read();
    cursor.early_retry.end_read(false);
  }

  void read_to(int64_t position) {
    cursor.begin_read();
    cursor.passed(position);
    cursor.end_read(false);
  }

  SinkCursor cursor;
};

TEST_F(DispatchSinkCursor, ARestartSeesAllRowsAgain) {
  cursor.late_commit(101, 50);
  cursor.hold_batch();
  cursor.restart(CURSOR_NOW);
  EXPECT_EQ(cursor.position(), 0);
  EXPECT_TRUE(cursor.has_backlog());
  EXPECT_EQ(cursor.due.next(), WALL_TIME_BEGIN);
  EXPECT_TRUE(cursor.early_retry.going());
  EXPECT_TRUE(cursor.late.empty()) << "their rows come in order of position";
  EXPECT_TRUE(cursor.rewound_before(1)) << "nothing may be handed over that is held in hand";
  EXPECT_EQ(cursor.low_watermark(), 0);
}

TEST_F(DispatchSinkCursor, ASinkThatStartsSkipsToItsFirstRowOnce) {
  EXPECT_TRUE(cursor.is_at_start()) << "no start was told of";
  cursor.restart(CURSOR_NOW);
  cursor.begin_round();
  cursor.start_after(500);
  EXPECT_EQ(cursor.position(), 500);
  EXPECT_TRUE(cursor.advanced());
  EXPECT_FALSE(cursor.is_at_start());
  EXPECT_TRUE(cursor.has_backlog()) << "the rows behind are yet to be read";
  EXPECT_EQ(cursor.due.next(), WALL_TIME_BEGIN) << "those with a time that were skipped";
  EXPECT_EQ(cursor.low_watermark(), 0);
  cursor.late_commit(101, 400);
  EXPECT_FALSE(cursor.may_read()) << "what commits in the gap is late";
  cursor.restart(CURSOR_NOW);
  EXPECT_TRUE(cursor.is_at_start());
}

TEST_F(DispatchSinkCursor, ARollBackTakesAStartBack) {
  cursor.restart(CURSOR_NOW);
  cursor.begin_round();
  cursor.start_after(500);
  cursor.roll_back_round();
  EXPECT_EQ(cursor.position(), 0);
  EXPECT_TRUE(cursor.is_at_start()) << "the next snapshot may show other first rows";
  cursor.begin_round();
  cursor.start_after(300);
  cursor.begin_round();
  cursor.roll_back_round();
  EXPECT_EQ(cursor.position(), 300) << "that round had ended";
  EXPECT_FALSE(cursor.is_at_start());
}

TEST_F(DispatchSinkCursor, AnEventThatCameBackBeforeTheStartIsRead) {
  cursor.restart(CURSOR_NOW);
  cursor.begin_round();
  cursor.rewind(60);
  EXPECT_FALSE(cursor.is_at_start()) << "it may be marked and have a time, which the due scan does not read";
  cursor.start_after(500);
  cursor.rewind(60);
  EXPECT_EQ(cursor.position(), 59);
  cursor.roll_back_round();
  EXPECT_EQ(cursor.position(), 0);
  EXPECT_FALSE(cursor.is_at_start());
}

TEST_F(DispatchSinkCursor, ARewindGoesBackBeforeTheRowAndNeverForward) {
  cursor.rewind(60);
  EXPECT_EQ(cursor.position(), 59);
  EXPECT_TRUE(cursor.has_backlog());
  cursor.rewind(80);
  EXPECT_EQ(cursor.position(), 59);
}

TEST_F(DispatchSinkCursor, ARollBackGoesToWhereTheRoundBeganOrToTheRewind) {
  cursor.begin_round();
  EXPECT_FALSE(cursor.advanced());
  read_to(200);
  EXPECT_TRUE(cursor.advanced());
  cursor.roll_back_round();
  EXPECT_EQ(cursor.position(), 100);
  EXPECT_TRUE(cursor.has_backlog());
  cursor.begin_round();
  cursor.rewind(40);
  read_to(200);
  EXPECT_TRUE(cursor.advanced());
  cursor.roll_back_round();
  EXPECT_EQ(cursor.position(), 39) << "what came back below the beginning of the round was not sent";
}

TEST_F(DispatchSinkCursor, ARollBackTakesAllWaysOfReadingBack) {
  cursor.late_commit(101, 50);
  cursor.early_retry.begin("e", CURSOR_NOW);
  cursor.due.stop_before(CURSOR_NOW + 50);
  cursor.begin_round();
  cursor.late.first_read(50, true);
  cursor.early_retry.end_read(false);
  cursor.due.begin_read();
  cursor.begin_read();
  cursor.roll_back_round();
  EXPECT_FALSE(cursor.late.empty());
  EXPECT_TRUE(cursor.early_retry.going());
  EXPECT_EQ(cursor.due.next(), CURSOR_NOW + 50);
  EXPECT_FALSE(cursor.reading());
}

TEST_F(DispatchSinkCursor, OfAHeldBatchTheEventsBehindARewindMustNotBeHandedOver) {
  cursor.rewind(60);
  read_to(100);
  cursor.hold_batch();
  EXPECT_FALSE(cursor.rewound_before(INT64_MAX)) << "only rewinds since then count";
  cursor.rewind(80);
  cursor.rewind(90);
  read_to(100);
  EXPECT_FALSE(cursor.rewound_before(79));
  EXPECT_TRUE(cursor.rewound_before(80));
  cursor.event_came_back(60); /* its key was blocked then, so the cursor is not rewound */
  EXPECT_FALSE(cursor.rewound_before(60));
  EXPECT_TRUE(cursor.rewound_before(61));
}

TEST_F(DispatchSinkCursor, RowsOfALateTransactionComeBeforeTheMainScanGoesOn) {
  EXPECT_TRUE(cursor.may_read());
  cursor.late_commit(101, 101);
  EXPECT_TRUE(cursor.may_read()) << "its first row lies above: the main scan comes to all of them";
  cursor.late_commit(102, 100);
  EXPECT_FALSE(cursor.may_read());
  EXPECT_EQ(cursor.late.first().upto, 100);
  cursor.late.first_read(100, true);
  EXPECT_TRUE(cursor.may_read());
}

TEST_F(DispatchSinkCursor, ASinkClaimsNoMoreThanItHasRoomForByNumberAndByMemory) {
  cursor.set_free_places(3, 1000);
  cursor.event_claimed(1);
  cursor.event_claimed(1);
  EXPECT_EQ(cursor.free_places(), 1);
  cursor.event_claimed(1);
  EXPECT_EQ(cursor.free_places(), 0);
  EXPECT_FALSE(cursor.may_read());
  cursor.event_dropped();
  EXPECT_EQ(cursor.free_places(), 1);
  cursor.set_free_places(3, 1000);
  cursor.event_claimed(1000);
  EXPECT_EQ(cursor.free_places(), 0) << "by memory";
  cursor.set_free_places(3, 0);
  EXPECT_EQ(cursor.free_places(), 0);
  cursor.set_free_places(-1, 1000);
  EXPECT_EQ(cursor.free_places(), 0);
}

TEST_F(DispatchSinkCursor, RoutingIsOverForTheEventThatItWaitsForAlone) {
  cursor.wait_for_routing(120);
  cursor.routing_over(121);
  EXPECT_EQ(cursor.unrouted_at(), 120);
  cursor.routing_over(120);
  EXPECT_EQ(cursor.unrouted_at(), 0);
  cursor.wait_for_routing(120);
  cursor.begin_round();
  EXPECT_EQ(cursor.unrouted_at(), 0) << "the round finds it again, unless it was routed";
}

/* ---- the low watermark ------------------------------------------------------------------------------------------
 */

TEST_F(DispatchSinkCursor, TheLowWatermarkIsTheLowestRowThatIsYetToBeClaimed) {
  cursor.raise_watermark(POSITION_NONE);
  EXPECT_EQ(cursor.low_watermark(), 101);
  cursor.raise_watermark(90);
  EXPECT_EQ(cursor.low_watermark(), 90);
  cursor.foreign_row_passed(80);
  cursor.foreign_row_passed(85);
  EXPECT_EQ(cursor.low_watermark(), 80);
  cursor.raise_watermark(90);
  EXPECT_EQ(cursor.low_watermark(), 80) << "a row of another origin stays where it is";
  cursor.late_commit(101, 50);
  cursor.late.first_read(60, false);
  cursor.raise_watermark(90);
  EXPECT_EQ(cursor.low_watermark(), 61);
}

TEST_F(DispatchSinkCursor, TheLowWatermarkSinksAtOnce) {
  cursor.raise_watermark(POSITION_NONE);
  cursor.lower_watermark(102);
  EXPECT_EQ(cursor.low_watermark(), 101);
  cursor.rewind(60);
  EXPECT_EQ(cursor.low_watermark(), 60);
  cursor.foreign_row_passed(50);
  EXPECT_EQ(cursor.low_watermark(), 50);
  cursor.late_commit(101, 40);
  EXPECT_EQ(cursor.low_watermark(), 0);
}

TEST_F(DispatchSinkCursor, ARollBackLowersTheLowWatermarkToTheCursor) {
  cursor.begin_round();
  read_to(200);
  cursor.raise_watermark(POSITION_NONE);
  cursor.roll_back_round();
  EXPECT_EQ(cursor.low_watermark(), 101);
}

/* ---- all of them ------------------------------------------------------------------------------------------------
 */

TEST(DispatchRound, ARoundThatIsRolledBackTakesAllCursorsAndLockedRowsBack) {
  std::unique_ptr<Dispatch> decisions{dispatch::create()};
  RoundSink sinks[2] = {};
  decisions->sinks.add(&sinks[0]);
  decisions->sinks.add(&sinks[1]);
  SinkCursor *first = sinks[0].cursor, *second = sinks[1].cursor;
  first->passed(10);
  second->passed(20);
  decisions->locked_rows.add(5, 1, 7);
  decisions->begin_round({{3'600'000'000}, CURSOR_NOW}, 10, 1000);
  EXPECT_TRUE(decisions->round.open);
  decisions->locked_rows.take_due();
  EXPECT_EQ(decisions->locked_rows.look_count(), 1);
  first->passed(30);
  second->passed(30);
  decisions->rescan_cursor.end_page({50, 7});
  decisions->roll_back_round();
  EXPECT_FALSE(decisions->round.open);
  EXPECT_EQ(first->position(), 10);
  EXPECT_EQ(second->position(), 20);
  EXPECT_EQ(decisions->rescan_cursor.after().xact, 0U);
  EXPECT_EQ(decisions->locked_rows.first_of_key(1, 7), 5);
}

TEST(DispatchRound, LateCommitsOfARoundThatIsRolledBackAreFoundAgain) {
  std::unique_ptr<Dispatch> decisions{dispatch::create()};
  RoundSink sink = {};
  decisions->sinks.add(&sink);
  SinkCursor *cursor = sink.cursor;
  const uint64_t running[] = {101};
  cursor->passed(50);
  decisions->late_commits.find_ended({running, 1, 105, 105});
  decisions->late_commits.note_running({running, 1, 105, 105});
  for (int round = 0; round < 2; round++) {
    decisions->begin_round({{3'600'000'000}, CURSOR_NOW}, 10, 1000);
    decisions->late_commits.find_ended({nullptr, 0, 106, 106});
    ASSERT_EQ(decisions->late_commits.ended().size(), 1U);
    cursor->late_commit(decisions->late_commits.ended()[0], 40);
    decisions->late_commits.note_running({nullptr, 0, 106, 106});
    cursor->late.first_read(50, true);
    EXPECT_TRUE(cursor->late.empty());
    decisions->roll_back_round();
  }
}

TEST(DispatchRound, DrainingKeysOfARoundThatIsRolledBackBeginAgain) {
  std::unique_ptr<Dispatch> decisions{dispatch::create()};
  decisions->blocked_keys.drain(1, 77, 5);
  decisions->begin_round({{3'600'000'000}, CURSOR_NOW}, 10, 1000);
  decisions->blocked_keys.drained_to(1, 77, 30);
  decisions->roll_back_round();
  EXPECT_EQ(decisions->blocked_keys.find(1, 77)->drained, 0);
}

TEST(DispatchRound, TheLowWatermarkIsThatOfAllThatIsKnownOfASink) {
  std::unique_ptr<Dispatch> decisions{dispatch::create()};
  RoundSink sinks[3] = {};
  for (SinkId i = 0; i < 3; i++) {
    sinks[i].events.id = i + 1;
    decisions->sinks.add(&sinks[i]);
    sinks[i].cursor->passed(100);
  }
  const auto watermarks = [&] {
    decisions->raise_watermarks();
    return std::vector<int64_t>{sinks[0].cursor->low_watermark(), sinks[1].cursor->low_watermark(),
                                sinks[2].cursor->low_watermark()};
  };
  EXPECT_EQ(watermarks(), (std::vector<int64_t>{101, 101, 101}));
  decisions->block_key(3, 77, 90);
  EXPECT_EQ(watermarks(), (std::vector<int64_t>{101, 101, 90}));
  InFlight::Claimed claimed = {};
  claimed.position = 80;
  claimed.sink = &sinks[0].events;
  InFlightEvent *event = decisions->in_flight.claim(claimed);
  EXPECT_EQ(watermarks(), (std::vector<int64_t>{80, 101, 90}));
  event->given_to = 2;
  EXPECT_EQ(watermarks(), (std::vector<int64_t>{80, 80, 90}));
  decisions->marks.add_returned({70, {}, 0, 2, 77});
  EXPECT_EQ(watermarks(), (std::vector<int64_t>{80, 70, 90}));
  decisions->locked_rows.add(60, 3, 77);
  EXPECT_EQ(watermarks(), (std::vector<int64_t>{60, 60, 60})) << "the sink of a locked row may be another by now";
  ShardSet gained = {};
  gained.add(1);
  ASSERT_TRUE(sinks[1].shards.update(gained, {}));
  EXPECT_EQ(watermarks(), (std::vector<int64_t>{0, 0, 0}));
}

TEST(DispatchRound, ASinkThatWasRemovedTakesNoPart) {
  std::unique_ptr<Dispatch> decisions{dispatch::create()};
  RoundSink sinks[3] = {};
  for (RoundSink &sink : sinks)
    decisions->sinks.add(&sink);
  sinks[2].cursor->passed(10);
  decisions->sinks.remove(&sinks[1]);
  ASSERT_EQ(decisions->sinks.all().size(), 2U);
  EXPECT_EQ(decisions->sinks.all()[1], &sinks[2]);
  EXPECT_EQ(sinks[2].cursor->position(), 10) << "it keeps its own cursor";
}

}  // namespace
