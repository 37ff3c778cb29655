/* The scans of a single sink, and how a key drains. */
#include "dispatch/sink_scan.h"

#include <memory>

#include <gtest/gtest.h>

#include "dispatch/classify_row.h"
#include "dispatch/draining.h"

using namespace dispatch;

namespace {

constexpr WallTime SCAN_NOW = 1'000'000;

class DispatchSinkScan : public testing::Test {
protected:
  void SetUp() override {
    cursor.restart(SCAN_NOW);
    cursor.due.begin_read();
    cursor.set_has_backlog(false);
  }

  SinkScan begin(RowScan scan, int64_t below = 0) { return {scan, &cursor, 3, 0, below}; }

  SinkCursor cursor;
};

TEST_F(DispatchSinkScan, AScanEndsBeforeTheRowForWhichThereIsNoRoom) {
  SinkScan scan = begin(RowScan::LATE);
  EXPECT_FALSE(scan.ends_before(5, SCAN_NOW, SCAN_NOW));
  EXPECT_TRUE(scan.row_read(5, SCAN_NOW, RowVerdict::CLAIM, true));
  EXPECT_FALSE(scan.ends_before(6, SCAN_NOW, SCAN_NOW));
  EXPECT_FALSE(scan.row_read(6, SCAN_NOW, RowVerdict::STOP, true));
  EXPECT_EQ(scan.last_position, 5);
  EXPECT_TRUE(cursor.has_backlog());
  EXPECT_FALSE(scan.all_read());
}

TEST_F(DispatchSinkScan, AScanThatWasFullMayHaveMore) {
  SinkScan scan = begin(RowScan::LATE);
  EXPECT_TRUE(scan.all_read());
  for (int64_t position : {5, 6, 7}) {
    EXPECT_TRUE(scan.all_read());
    EXPECT_FALSE(scan.ends_before(position, SCAN_NOW, SCAN_NOW));
    EXPECT_TRUE(scan.row_read(position, SCAN_NOW, RowVerdict::SKIP, false));
  }
  EXPECT_FALSE(scan.all_read());
  EXPECT_EQ(scan.last_position, 7);
}

TEST_F(DispatchSinkScan, AnEventThatIsToBeRoutedStopsTheSinkThatTakesItAlone) {
  SinkScan scan = begin(RowScan::LATE);
  cursor.set_has_backlog(true);
  cursor.wait_for_routing(6);
  EXPECT_TRUE(scan.row_read(5, SCAN_NOW, RowVerdict::STOP, false));
  EXPECT_FALSE(scan.row_read(6, SCAN_NOW, RowVerdict::STOP, false));
  EXPECT_EQ(scan.last_position, 5);
  EXPECT_FALSE(cursor.has_backlog()) << "it waits for the routing, not for room";
}

TEST_F(DispatchSinkScan, DueRowsAreReadUpToTheFirstThatIsNotDue) {
  SinkScan scan = begin(RowScan::DUE);
  EXPECT_FALSE(scan.ends_before(9, SCAN_NOW - 1, SCAN_NOW));
  EXPECT_TRUE(scan.row_read(9, SCAN_NOW - 1, RowVerdict::CLAIM, true));
  EXPECT_FALSE(scan.ends_before(5, SCAN_NOW, SCAN_NOW));
  EXPECT_TRUE(scan.row_read(5, SCAN_NOW, RowVerdict::SKIP, true));
  EXPECT_TRUE(scan.ends_before(4, SCAN_NOW + 1, SCAN_NOW));
  EXPECT_EQ(cursor.due.after(), SCAN_NOW);
  EXPECT_EQ(cursor.due.after_position(), 5);
  EXPECT_EQ(cursor.due.next(), SCAN_NOW + 1);
  EXPECT_TRUE(scan.stopped);
}

TEST_F(DispatchSinkScan, ADueRowThatHadNoRoomIsTheNextOne) {
  SinkScan scan = begin(RowScan::DUE);
  EXPECT_FALSE(scan.row_read(9, SCAN_NOW - 1, RowVerdict::STOP, true));
  EXPECT_EQ(cursor.due.next(), SCAN_NOW - 1);
  EXPECT_EQ(cursor.due.after(), WALL_TIME_BEGIN);
}

TEST_F(DispatchSinkScan, ADrainingKeyIsReadUpToItsBound) {
  SinkScan scan = begin(RowScan::DRAINING, 10);
  EXPECT_FALSE(scan.ends_before(9, SCAN_NOW + 5, SCAN_NOW)) << "its time is the classification's business";
  EXPECT_TRUE(scan.row_read(9, SCAN_NOW, RowVerdict::CLAIM, true));
  EXPECT_TRUE(scan.ends_before(10, SCAN_NOW, SCAN_NOW));
  EXPECT_TRUE(scan.reached);
  EXPECT_TRUE(scan.all_read()) << "of the rows below it";
  EXPECT_EQ(scan.last_position, 9);
}

class DispatchDraining : public testing::Test {
protected:
  static constexpr KeyId KEY = {5, 77};

  void SetUp() override {
    sink.events.id = KEY.sink;
    decisions->sinks.add(&sink);
    cursor = sink.cursor;
    cursor->passed(100);
    cursor->set_free_places(10, 1000);
    with_room().blocked_keys.drain(KEY.sink, KEY.key_hash, 7);
  }

  Dispatch &with_room() { return *decisions; }

  int64_t below(DrainStops stops = {}) { return drain_below(*decisions, *cursor, KEY, stops); }
  const BlockedKey *key() { return decisions->blocked_keys.find(KEY.sink, KEY.key_hash); }
  void lock(int64_t position) { with_room().locked_rows.add(position, KEY.sink, KEY.key_hash); }

  InFlightEvent *end(int64_t position, Outcome outcome) {
    InFlight::Claimed claimed = {};
    claimed.position = position;
    claimed.key_hash = KEY.key_hash;
    claimed.sink = &sink.events;
    InFlightEvent *event = with_room().in_flight.claim(claimed);
    decisions->in_flight.submitted(event, MOMENT_NONE);
    decisions->in_flight.end(event, outcome, -1, nullptr, {MOMENT_NONE, 0});
    return event;
  }

  RowVerdict classify(int64_t position, int64_t blocked_by, RowScan scan, WallTime available_at = 0) {
    Row row = {};
    row.position = position;
    row.key_hash = KEY.key_hash;
    row.blocked_by = blocked_by;
    row.available_at = available_at;
    sink.rules.ordered = true;
    return classify_row(with_room(), row, sink, scan).verdict;
  }

  /* A read that has passed two rows. */
  SinkScan scan(int64_t dead = POSITION_NONE) {
    SinkScan scan = {RowScan::DRAINING, cursor, 10, 0, below({.dead = dead})};
    for (int64_t position : {20, 30})
      if (!scan.ends_before(position, SCAN_NOW, SCAN_NOW))
        scan.row_read(position, SCAN_NOW, RowVerdict::CLAIM, true);
    return scan;
  }

  std::unique_ptr<Dispatch> decisions{dispatch::create()};
  RoundSink sink = {};
  SinkCursor *cursor = nullptr;
};

TEST_F(DispatchDraining, AKeyDrainsUpToTheCursorALockedRowOrADeadLetter) {
  EXPECT_EQ(below(), 101);
  EXPECT_EQ(below({.dead = 60}), 60);
  lock(50);
  EXPECT_EQ(below({.dead = 60}), 50);
}

/* The event of which a recording is put off lost its place as blocker to an earlier one, which was sent. */
TEST_F(DispatchDraining, AFailedEventThatIsNotRecordedBlocksItsKeyAgain) {
  EXPECT_FALSE(block_by_unrecorded(with_room(), KEY));
  end(40, Outcome::RETRY), end(30, Outcome::DEFERRED), end(20, Outcome::SENT), end(10, Outcome::REJECTED);
  EXPECT_FALSE(block_by_unrecorded(with_room(), {KEY.sink, 78})) << "another key";
  EXPECT_TRUE(block_by_unrecorded(with_room(), KEY));
  EXPECT_EQ(key()->state, KeyState::BLOCKED);
  EXPECT_EQ(key()->blocker, 30);
}

/* Its blocker became a dead letter again in the transaction that has marked it behind that blocker. */
TEST_F(DispatchDraining, AKeyDrainsUpToAFailureThatTheTransactionRecords) {
  for (const auto &[position, outcome] :
       {std::pair(28, Outcome::DEFERRED), {25, Outcome::RETRY}, {15, Outcome::SENT}})
    EXPECT_NE(with_room().settle(end(position, outcome), FoundRow::OURS, Retention::NONE), Disposition::LATER);
  EXPECT_FALSE(block_by_unrecorded(with_room(), KEY));
  EXPECT_EQ(decisions->recording.first_failure({KEY.sink, KEY.key_hash + 1}), POSITION_NONE);
  EXPECT_EQ(below(), 25);
  SinkScan nothing = {RowScan::DRAINING, cursor, 10, 0, below()};
  drain_read_ended(with_room(), nothing, KEY, {});
  EXPECT_NE(key(), nullptr) << "its row is to be read once it is recorded";
  decisions->commit_recording(1);
  EXPECT_EQ(key()->state, KeyState::BLOCKED);
  EXPECT_EQ(key()->blocker, 25);
}

TEST_F(DispatchDraining, AKeyIsFreeWhenNothingIsLeftBehindIt) {
  drain_read_ended(with_room(), scan(), KEY, {});
  EXPECT_EQ(key(), nullptr);
}

/* A marked row that is not due loses its mark. A round that fails gives it back, and nothing else comes to the row.
 */
TEST_F(DispatchDraining, AKeyDrainsOnUntilTheRemovalOfAMarkHasCommitted) {
  Row row = {};
  row.position = 20;
  row.key_hash = KEY.key_hash;
  row.available_at = SCAN_NOW + 1;
  row.blocked_by = 7;
  for (const bool failed : {false, true}) { /* a scheduled event, and a failing one, which blocks the key */
    row.failed = failed;
    decisions->begin_round({{1}, SCAN_NOW}, 10, 1000);
    RoundSink its_sink = {};
    its_sink.events.id = KEY.sink;
    its_sink.cursor = cursor;
    its_sink.rules.ordered = true;
    ASSERT_EQ(classify_row(*decisions, row, its_sink, RowScan::DRAINING).verdict, RowVerdict::SKIP);
    drain_read_ended(with_room(), scan(), KEY, {});
    decisions->roll_back_round();
    ASSERT_NE(key(), nullptr);
    EXPECT_EQ(key()->state, KeyState::DRAINING);
    EXPECT_EQ(key()->drained, 0);
  }
  decisions->begin_round({{2}, SCAN_NOW}, 10, 1000);
  drain_read_ended(with_room(), scan(), KEY, {});
  EXPECT_EQ(key(), nullptr);
}

TEST_F(DispatchDraining, AKeyDrainsOnWhenRowsAreLeft) {
  SinkScan full = scan();
  full.limit = 2;
  drain_read_ended(with_room(), full, KEY, {});
  ASSERT_NE(key(), nullptr);
  EXPECT_EQ(key()->drained, 30);
  cursor->passed(24);
  drain_read_ended(with_room(), scan(), KEY, {});
  ASSERT_NE(key(), nullptr) << "the main scan has yet to come to the others";
  EXPECT_EQ(key()->drained, 20);
}

TEST_F(DispatchDraining, ALockedRowKeepsTheKeyDraining) {
  SinkScan read = scan();
  lock(50);
  drain_read_ended(with_room(), read, KEY, {}); /* the read itself has come across it */
  ASSERT_NE(key(), nullptr);
  EXPECT_EQ(key()->state, KeyState::DRAINING);
}

TEST_F(DispatchDraining, ADeadLetterBlocksTheKeyWhenItIsNext) {
  cursor->set_has_backlog(true);
  drain_read_ended(with_room(), scan(25), KEY, {.dead = 25});
  ASSERT_NE(key(), nullptr);
  EXPECT_EQ(key()->state, KeyState::BLOCKED);
  EXPECT_EQ(key()->blocker, 25);
}

TEST_F(DispatchDraining, ADeadLetterBlocksTheKeyWhenTheRemovalOfAMarkHasCommitted) {
  decisions->begin_round({{1}, SCAN_NOW}, 10, 1000);
  ASSERT_EQ(classify(20, 7, RowScan::DRAINING, SCAN_NOW + 1), RowVerdict::SKIP);
  drain_read_ended(with_room(), scan(25), KEY, {.dead = 25});
  EXPECT_EQ(key()->state, KeyState::DRAINING);
  decisions->roll_back_round(); /* the row keeps its mark */
  EXPECT_EQ(key()->state, KeyState::DRAINING);
  decisions->begin_round({{2}, SCAN_NOW}, 10, 1000);
  drain_read_ended(with_room(), scan(25), KEY, {.dead = 25});
  EXPECT_EQ(key()->state, KeyState::BLOCKED);
}

/* The key had no marked row. A row was then moved to it, or one that had drained came back unsent. */
TEST_F(DispatchDraining, ARowThatComesBeforeTheDeadLetterAfterTheDrainDoesNotWaitForIt) {
  decisions->begin_round({{1}, SCAN_NOW}, 10, 1000);
  const SinkScan nothing = {RowScan::DRAINING, cursor, 10, 0, below({.dead = 25})};
  drain_read_ended(with_room(), nothing, KEY, {.dead = 25});
  ASSERT_EQ(key()->blocker, 25);
  EXPECT_EQ(classify(20, 0, RowScan::RESCAN), RowVerdict::CLAIM);
  EXPECT_EQ(classify(20, 9, RowScan::RESCAN), RowVerdict::CLAIM) << "it has the mark of its former key";
  cursor->rewind(20);
  cursor->begin_read();
  EXPECT_EQ(classify(20, 7, RowScan::MAIN), RowVerdict::CLAIM);
  EXPECT_EQ(classify(30, 0, RowScan::MAIN), RowVerdict::BLOCK) << "it comes after the dead letter";
}

TEST_F(DispatchDraining, ADeadLetterAboveTheCursorBlocksTheKeyWhenAllBeforeItWasClaimed) {
  drain_read_ended(with_room(), scan(200), KEY, {.dead = 200});
  ASSERT_NE(key(), nullptr);
  EXPECT_EQ(key()->blocker, 200);
}

TEST_F(DispatchDraining, ADeadLetterDoesNotBlockTheKeyWhileRowsBeforeItWait) {
  lock(50);
  drain_read_ended(with_room(), scan(60), KEY, {.dead = 60});
  EXPECT_EQ(key()->state, KeyState::DRAINING) << "a locked one";
  cursor->set_has_backlog(true);
  drain_read_ended(with_room(), scan(200), KEY, {.dead = 200});
  EXPECT_EQ(key()->state, KeyState::DRAINING) << "one that the main scan has yet to see";
}

/* It was a dead letter until the round's snapshot, and the rescan has yet to read it. */
TEST_F(DispatchDraining, ARedrivenRowIsNotPassed) {
  EXPECT_EQ(below({.redriven = 60}), 60);
  EXPECT_EQ(below({.dead = 40, .redriven = 60}), 40);
  for (const DrainStops &stops : {DrainStops{.redriven = 60}, DrainStops{.dead = 80, .redriven = 60}}) {
    SinkScan read = {RowScan::DRAINING, cursor, 10, 0, below(stops)};
    drain_read_ended(with_room(), read, KEY, stops);
    ASSERT_NE(key(), nullptr);
    EXPECT_EQ(key()->state, KeyState::DRAINING)
        << "blocked by a later event, or free, it would never be sent in its turn";
  }
}

TEST_F(DispatchDraining, AKeyThatARowOfTheReadBlocksStaysBlocked) {
  with_room().block_key(KEY.sink, KEY.key_hash, 30);
  drain_read_ended(with_room(), scan(), KEY, {});
  ASSERT_NE(key(), nullptr);
  EXPECT_EQ(key()->blocker, 30);
}

}  // namespace
