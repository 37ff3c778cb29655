/* The verdict of a round of claiming for each kind of row. */
#include "dispatch/classify_row.h"

#include <memory>
#include <random>
#include <string>

#include <gtest/gtest.h>

using namespace dispatch;

class DispatchClassifyRow : public testing::Test {
protected:
  static constexpr SinkId SINK = 5;
  static constexpr uint64_t KEY = 77;
  static constexpr WallTime NOW = 1'000'000;

  void SetUp() override {
    sink.events.id = SINK;
    sink.cursor = &cursor;
    sink.rules.ordered = true;
    cursor.restart(NOW);
    cursor.due.begin_read(); /* no row has a time of its own */
    cursor.set_free_places(10, 1000);
    cursor.begin_read();
    begin_round();
  }

  void begin_round() {
    if (decisions->round.open)
      decisions->commit_round();
    decisions->begin_round({{3'600'000'000}, NOW}, 10, 1000);
  }

  static Row row(int64_t position, WallTime available_at = 0, bool failed = false) {
    Row one = {};
    one.position = position;
    one.key_hash = KEY;
    one.available_at = available_at;
    one.failed = failed;
    one.handle = {11, 12, 13, 14};
    return one;
  }

  static Row redriven_row(int64_t position) {
    Row one = row(position);
    one.redriven = true;
    return one;
  }

  Dispatch &with_room() { return *decisions; }

  RowVerdict classify(const Row &one, RowScan scan = RowScan::MAIN) {
    if (one.redriven)
      decisions->redrive_order.know(decisions->in_flight);
    last = dispatch::classify_row(with_room(), one, sink, scan);
    return last.verdict;
  }

  InFlightEvent *claim(int64_t position, uint64_t key_hash = KEY, uint32_t bytes = 100) {
    InFlight::Claimed claimed = {};
    claimed.position = position;
    claimed.key_hash = key_hash;
    claimed.sink = &sink.events;
    claimed.bytes = bytes;
    InFlightEvent *event = with_room().in_flight.claim(claimed);
    decisions->event_claimed(event);
    return event;
  }

  /* Rows of the key wait behind the event at this position; returns their group. */
  int64_t block(int64_t position) {
    with_room().block_key(SINK, KEY, position);
    return key()->group;
  }

  /* The groups that the marks of this round name. */
  std::vector<int64_t> marked() {
    std::vector<int64_t> groups;
    for (const Mark &mark : decisions->marks.all())
      groups.push_back(mark.group);
    return groups;
  }
  using Groups = std::vector<int64_t>;

  const BlockedKey *key() { return decisions->blocked_keys.find(SINK, KEY); }

  std::unique_ptr<Dispatch> decisions{dispatch::create()};
  SinkCursor cursor;
  RoundSink sink = {};
  RowDecision last = {};
};

TEST_F(DispatchClassifyRow, ARowThatNothingKeepsIsClaimed) {
  EXPECT_EQ(classify(row(10)), RowVerdict::CLAIM);
  EXPECT_EQ(key(), nullptr);
  EXPECT_TRUE(decisions->marks.all().empty());
}

TEST_F(DispatchClassifyRow, TheMainScanClaimsWhatLiesAboveTheCursorAndTheOthersWhatLiesBelow) {
  cursor.passed(10);
  EXPECT_EQ(classify(row(10)), RowVerdict::SKIP);
  EXPECT_EQ(classify(row(11)), RowVerdict::CLAIM);
  for (RowScan scan : {RowScan::LATE, RowScan::DRAINING, RowScan::DUE, RowScan::RESCAN}) {
    EXPECT_EQ(classify(row(10), scan), RowVerdict::CLAIM);
    EXPECT_EQ(classify(row(11), scan), RowVerdict::SKIP) << "the main scan would send it once more";
  }
  cursor.end_read(false);
  EXPECT_EQ(classify(row(11)), RowVerdict::SKIP);
}

TEST_F(DispatchClassifyRow, ARowInFlightIsNotClaimedAgain) {
  InFlightEvent *event = claim(10);
  EXPECT_EQ(classify(row(10)), RowVerdict::SKIP);
  EXPECT_EQ(event->given_to, 0U);
}

TEST_F(DispatchClassifyRow, ARowInFlightForAnotherSinkIsKeptInMindForThisOne) {
  InFlightEvent *event = claim(10);
  RoundSink other = sink;
  other.events.id = 6;
  EXPECT_EQ(dispatch::classify_row(*decisions, row(10), other, RowScan::MAIN).verdict, RowVerdict::SKIP);
  EXPECT_EQ(event->given_to, 6U);
}

TEST_F(DispatchClassifyRow, ARowInFlightWhoseKeyHasChangedIsReadAgain) {
  InFlightEvent *event = claim(10, KEY + 1);
  EXPECT_EQ(classify(row(10)), RowVerdict::SKIP);
  EXPECT_EQ(event->given_to, SINK);
  InFlightEvent *unordered = claim(11, 0);
  sink.rules.ordered = false;
  EXPECT_EQ(classify(row(11)), RowVerdict::SKIP);
  EXPECT_EQ(unordered->given_to, 0U) << "its key means nothing there";
}

TEST_F(DispatchClassifyRow, ARowThatCameBackWhileItsFormerOneIsGoneIsKeptInMind) {
  InFlightEvent *event = claim(10);
  decisions->in_flight.submitted(event, MOMENT_NONE);
  decisions->in_flight.end(event, Outcome::SENT, -1, nullptr, {MOMENT_NONE, NOW});
  decisions->in_flight.gone(event);
  EXPECT_EQ(classify(row(10)), RowVerdict::SKIP);
  EXPECT_EQ(event->given_to, SINK);
}

TEST_F(DispatchClassifyRow, WithoutRoomTheScanStopsBeforeTheRow) {
  cursor.set_free_places(0, 1000);
  EXPECT_EQ(classify(row(10)), RowVerdict::STOP);
  cursor.set_free_places(1, 1000);
  decisions->begin_round({{3'600'000'000}, NOW}, 1, 1000);
  EXPECT_EQ(classify(row(10)), RowVerdict::CLAIM);
  claim(10);
  EXPECT_EQ(classify(row(11)), RowVerdict::STOP) << "by number";
  decisions->begin_round({{3'600'000'000}, NOW}, 10, 100);
  claim(20, 0, 100);
  EXPECT_EQ(classify(row(21)), RowVerdict::STOP) << "by memory";
}

TEST_F(DispatchClassifyRow, TooManyLockedRowsStopTheMainScanAlone) {
  for (int i = 0; i < 20000; i++)
    with_room().locked_rows.add(1000 + i, SINK, KEY + 1);
  EXPECT_EQ(classify(row(10)), RowVerdict::STOP);
  cursor.passed(10);
  EXPECT_EQ(classify(row(10), RowScan::DUE), RowVerdict::CLAIM);
}

TEST_F(DispatchClassifyRow, ARowBehindABlockerIsMarkedOnce) {
  const int64_t group = block(10);
  EXPECT_EQ(classify(row(11)), RowVerdict::BLOCK);
  EXPECT_EQ(last.blocker, 10);
  ASSERT_EQ(decisions->marks.all().size(), 1U);
  const Mark mark = decisions->marks.all()[0];
  EXPECT_EQ(mark.position, 11);
  EXPECT_EQ(mark.group, group);
  EXPECT_EQ(mark.sink, SINK);
  EXPECT_EQ(mark.key_hash, KEY);
  EXPECT_EQ(mark.row.page, 11U);
  EXPECT_EQ(mark.row.line, 12U);
  Row marked = row(12);
  marked.blocked_by = group;
  EXPECT_EQ(classify(marked), RowVerdict::SKIP);
  EXPECT_EQ(decisions->marks.all().size(), 1U);
}

/* As when there is no memory to begin the next round: its rollback is all that follows the commit. */
TEST_F(DispatchClassifyRow, ARollbackUndoesNoMarkOfTheRoundBefore) {
  with_room().blocked_keys.drain(SINK, KEY, 7);
  Row failing = row(10, NOW + 1'000'000, true);
  failing.blocked_by = 7;
  EXPECT_EQ(classify(failing), RowVerdict::SKIP);
  ASSERT_TRUE(decisions->marks.all().front().removes);
  decisions->commit_round();
  decisions->roll_back_round();
  EXPECT_EQ(key()->state, KeyState::BLOCKED);
}

TEST_F(DispatchClassifyRow, TheBlockerItselfAndWhatComesBeforeItAreClaimed) {
  block(10);
  EXPECT_EQ(classify(row(10)), RowVerdict::CLAIM);
  EXPECT_EQ(classify(row(9)), RowVerdict::CLAIM);
}

TEST_F(DispatchClassifyRow, AnotherKeyAndAnotherSinkDoNotWait) {
  block(10);
  Row other = row(11);
  other.key_hash = KEY + 1;
  EXPECT_EQ(classify(other), RowVerdict::CLAIM);
  sink.events.id = SINK + 1;
  EXPECT_EQ(classify(row(11)), RowVerdict::CLAIM);
}

TEST_F(DispatchClassifyRow, WithoutOrderNothingWaits) {
  block(10);
  sink.rules.ordered = false;
  const Row redriven = redriven_row(11);
  claim(12);
  EXPECT_EQ(classify(row(11)), RowVerdict::CLAIM);
  EXPECT_EQ(classify(redriven), RowVerdict::CLAIM);
}

TEST_F(DispatchClassifyRow, WhileAKeyDrainsOnlyItsMarkedRowsAreClaimed) {
  with_room().blocked_keys.drain(SINK, KEY, 7);
  cursor.passed(20);
  EXPECT_EQ(classify(row(11), RowScan::DRAINING), RowVerdict::CLAIM);
  EXPECT_EQ(classify(row(11), RowScan::LATE), RowVerdict::BLOCK);
  EXPECT_EQ(classify(row(21)), RowVerdict::BLOCK);
}

TEST_F(DispatchClassifyRow, AMarkedRowThatTheDrainingKeyHasPassedIsDrainedToAgain) {
  with_room().blocked_keys.drain(SINK, KEY, 7);
  decisions->blocked_keys.drained_to(SINK, KEY, 15);
  Row marked = row(11);
  marked.blocked_by = 7;
  EXPECT_EQ(classify(marked), RowVerdict::SKIP);
  EXPECT_LT(key()->drained, 11);
}

/* A scheduled event that fails, for example, blocks a key while earlier events are marked. */
TEST_F(DispatchClassifyRow, WhenALaterEventBlocksADrainingKeyNoRowGoesBeforeThoseThatHaveYetToDrain) {
  with_room().blocked_keys.drain(SINK, KEY, 7);
  decisions->blocked_keys.drained_to(SINK, KEY, 10);
  block(30);
  cursor.passed(40);
  EXPECT_EQ(classify(row(11), RowScan::LATE), RowVerdict::CLAIM) << "no marked row is left before it";
  for (RowScan scan : {RowScan::LATE, RowScan::DUE, RowScan::RESCAN}) {
    begin_round();
    EXPECT_EQ(classify(row(20), scan), RowVerdict::BLOCK);
    EXPECT_EQ(marked(), Groups{7});
  }
  Row marked = row(20);
  marked.blocked_by = 7;
  EXPECT_EQ(classify(marked, RowScan::RESCAN), RowVerdict::SKIP);
  EXPECT_EQ(key()->state, KeyState::BLOCKED);
}

/* A user can change the row of a returned event before the round that marks it. That mark is not written then. */
TEST_F(DispatchClassifyRow, AMarkOfItsFormerSinkOrKeyIsNotTheMarkOfARow) {
  block(10);
  cursor.passed(40);
  decisions->marks.add({20, {11, 12, 13, 14}, 9, SINK + 1, KEY});
  decisions->marks.add({21, {11, 12, 13, 14}, 9, SINK, KEY + 1});
  for (int64_t position : {20, 21}) {
    EXPECT_EQ(classify(row(position), RowScan::RESCAN), RowVerdict::BLOCK);
    EXPECT_EQ(classify(row(position), RowScan::RESCAN), RowVerdict::SKIP) << "this round has marked it";
  }
}

TEST_F(DispatchClassifyRow, ALaterBlockerWhoseTimeHasComeGoesAfterThoseThatHaveYetToDrain) {
  with_room().blocked_keys.drain(SINK, KEY, 7);
  decisions->blocked_keys.drained_to(SINK, KEY, 10);
  block(30);
  cursor.passed(40);
  EXPECT_EQ(classify(row(30), RowScan::DUE), RowVerdict::SKIP);
  EXPECT_EQ(key()->state, KeyState::DRAINING);
  EXPECT_EQ(decisions->locked_rows.first_of_key(SINK, KEY), 30) << "so far it drains, and then it is read again";
  EXPECT_TRUE(decisions->marks.all().empty());
  decisions->blocked_keys.drained_to(SINK, KEY, 29);
  block(30);
  EXPECT_EQ(classify(row(30), RowScan::DUE), RowVerdict::CLAIM) << "they have drained";
}

TEST_F(DispatchClassifyRow, AFailedEventLeadsItsKeyUntilItIsDue) {
  Row failed = row(10, NOW + 1, true);
  EXPECT_EQ(classify(failed), RowVerdict::SKIP);
  ASSERT_NE(key(), nullptr);
  EXPECT_EQ(key()->state, KeyState::BLOCKED);
  EXPECT_EQ(key()->blocker, 10);
  EXPECT_EQ(cursor.due.next(), NOW + 1);
  failed.available_at = NOW;
  EXPECT_EQ(classify(failed), RowVerdict::CLAIM) << "it is due";
}

TEST_F(DispatchClassifyRow, AScheduledEventLeadsNothing) {
  Row scheduled = row(10, NOW + 5);
  EXPECT_EQ(classify(scheduled), RowVerdict::SKIP);
  EXPECT_EQ(key(), nullptr);
  EXPECT_EQ(cursor.due.next(), NOW + 5);
  block(10);
  EXPECT_EQ(classify(scheduled), RowVerdict::SKIP);
  EXPECT_EQ(key()->state, KeyState::DRAINING) << "a user has put a failing event off: it no longer blocks its key";
}

TEST_F(DispatchClassifyRow, AFailedEventBehindAnotherOneIsMarked) {
  const int64_t group = block(9);
  Row failed = row(10, NOW + 1, true);
  EXPECT_EQ(classify(failed), RowVerdict::SKIP);
  EXPECT_EQ(marked(), Groups{group});
  failed.blocked_by = group;
  EXPECT_EQ(classify(failed), RowVerdict::SKIP);
  EXPECT_EQ(decisions->marks.all().size(), 1U);
}

TEST_F(DispatchClassifyRow, WhatIsFoundWhenItIsDueHasNoMark) {
  Row scheduled = row(10, NOW + 5);
  scheduled.blocked_by = 3;
  EXPECT_EQ(classify(scheduled), RowVerdict::SKIP);
  EXPECT_EQ(marked(), (Groups{0}));
}

TEST_F(DispatchClassifyRow, AClockThatWasSetBackTakesTheDueCursorAlong) {
  cursor.due.passed(NOW + 100, 1);
  Row scheduled = row(10, NOW + 50);
  EXPECT_EQ(classify(scheduled), RowVerdict::SKIP);
  cursor.due.begin_round();
  EXPECT_EQ(cursor.due.after(), NOW + 49);
}

TEST_F(DispatchClassifyRow, ARedrivenEventWaitsForTheEndOfLaterOnes) {
  const Row redriven = redriven_row(10);
  cursor.passed(20);
  EXPECT_EQ(classify(redriven, RowScan::RESCAN), RowVerdict::CLAIM);
  claim(13, KEY + 1);
  claim(9);
  EXPECT_EQ(classify(redriven, RowScan::RESCAN), RowVerdict::CLAIM) << "of another key, or earlier";
  claim(12);
  EXPECT_EQ(classify(redriven, RowScan::RESCAN), RowVerdict::SKIP);
  EXPECT_TRUE(decisions->round.reordered);
  ASSERT_NE(key(), nullptr);
  EXPECT_EQ(key()->blocker, 10) << "nothing later of the key may be claimed";
  EXPECT_EQ(decisions->locked_rows.first_of_key(SINK, KEY), 10) << "it is looked at again";
}

TEST_F(DispatchClassifyRow, ARedrivenEventWithoutRoomBlocksItsKey) {
  const Row redriven = redriven_row(10);
  cursor.passed(20);
  cursor.set_free_places(0, 1000);
  EXPECT_EQ(classify(row(9), RowScan::RESCAN), RowVerdict::STOP);
  EXPECT_EQ(key(), nullptr) << "an event that was not redriven has nothing behind it";
  EXPECT_EQ(classify(redriven, RowScan::RESCAN), RowVerdict::STOP);
  ASSERT_NE(key(), nullptr);
  EXPECT_EQ(key()->blocker, 10) << "nothing later of the key may be claimed";
  EXPECT_TRUE(decisions->round.reordered) << "nor stay in a batch";
  cursor.set_free_places(1, 1000);
  EXPECT_EQ(classify(redriven, RowScan::RESCAN), RowVerdict::CLAIM);
}

TEST_F(DispatchClassifyRow, AMarkedRowWaitsAlsoBeforeTheBlocker) {
  Row marked = row(10);
  cursor.passed(20);
  marked.blocked_by = block(15);
  EXPECT_EQ(classify(row(15), RowScan::RESCAN), RowVerdict::CLAIM) << "the blocker itself";
  EXPECT_EQ(classify(marked, RowScan::RESCAN), RowVerdict::SKIP) << "earlier marked rows wait, too";
  EXPECT_EQ(classify(row(15), RowScan::RESCAN), RowVerdict::SKIP) << "the marked row goes first";
  EXPECT_EQ(key()->state, KeyState::DRAINING);
}

/* The early retry marks a failed row that is not due, since its key drains. If a rescan then made it the blocker of
 * its key, it would wait behind itself. */
TEST_F(DispatchClassifyRow, ARowThatTheRoundHasMarkedIsNotLookedAtAgain) {
  Row failed = row(10, 0, true);
  cursor.passed(20);
  block(5);
  decisions->blocked_keys.release(5);
  EXPECT_EQ(classify(failed, RowScan::DUE), RowVerdict::BLOCK);
  failed.available_at = NOW + 50;
  EXPECT_EQ(classify(failed, RowScan::RESCAN), RowVerdict::SKIP);
  EXPECT_EQ(key()->state, KeyState::DRAINING);
  EXPECT_EQ(decisions->marks.all().size(), 1U);
}

TEST_F(DispatchClassifyRow, ARedrivenEventWithoutRoomIsMarkedWhenItsKeyDrains) {
  const Row redriven = redriven_row(10);
  cursor.passed(20);
  const int64_t group = block(5);
  decisions->blocked_keys.release(5);
  cursor.set_free_places(0, 1000);
  EXPECT_EQ(classify(redriven, RowScan::RESCAN), RowVerdict::BLOCK);
  EXPECT_EQ(key()->state, KeyState::DRAINING) << "marked rows before it are still to be claimed";
  EXPECT_EQ(marked(), Groups{group});
}

TEST_F(DispatchClassifyRow, WhatIsInFlightIsAskedInEachRoundAnew) {
  const Row redriven = redriven_row(10);
  cursor.passed(20);
  InFlightEvent *later = claim(12);
  EXPECT_EQ(classify(redriven, RowScan::RESCAN), RowVerdict::SKIP);
  begin_round();
  EXPECT_EQ(classify(redriven, RowScan::RESCAN), RowVerdict::SKIP);
  decisions->in_flight.give_back(later);
  begin_round();
  EXPECT_EQ(classify(redriven, RowScan::RESCAN), RowVerdict::CLAIM);
}

class DispatchReturned : public DispatchClassifyRow {
protected:
  void come_back(int64_t position) { decisions->marks.add_returned({position, {}, 0, SINK, KEY}); }
  size_t returned() { return decisions->marks.returned().size(); }
};

TEST_F(DispatchReturned, AnEventThatCameBackBehindABlockerIsMarkedInTheNextRound) {
  const int64_t group = block(10);
  come_back(11);
  begin_round();
  decisions->mark_returned();
  EXPECT_EQ(marked(), Groups{group});
  EXPECT_EQ(decisions->marks.all().front().position, 11);
  decisions->commit_round();
  EXPECT_EQ(returned(), 0U);
}

TEST_F(DispatchReturned, OneWhoseKeyIsFreeByNowIsNotMarked) {
  come_back(11);
  begin_round();
  decisions->mark_returned();
  EXPECT_TRUE(decisions->marks.all().empty());
  ASSERT_EQ(returned(), 1U);
  EXPECT_EQ(decisions->marks.returned()[0].group, 0) << "the cursor goes back to it";
}

TEST_F(DispatchReturned, OneThatComesBackDuringTheRoundIsTheNextOnes) {
  block(10);
  come_back(11);
  begin_round();
  decisions->mark_returned();
  come_back(12);
  decisions->commit_round();
  ASSERT_EQ(returned(), 1U);
  EXPECT_EQ(decisions->marks.returned()[0].position, 12);
}

TEST_F(DispatchReturned, ARoundThatIsRolledBackForgetsAllSinceTheCursorGoesBack) {
  block(10);
  come_back(11);
  begin_round();
  decisions->mark_returned();
  come_back(12);
  decisions->roll_back_round();
  EXPECT_EQ(returned(), 0U);
  begin_round();
  EXPECT_TRUE(decisions->marks.all().empty());
}

TEST(DispatchKeyFilter, AKeyThatWasNotedIsPossibleAndMostOthersAreNot) {
  const auto filter = std::make_unique<KeyFilter>();
  std::mt19937_64 random(1), again(1);
  filter->note(0);
  EXPECT_FALSE(filter->possible(0)) << "an event without a key";
  for (int n = 0; n < 1'000'000; n++)
    filter->note(random());
  for (int n = 0; n < 1'000'000; n++)
    ASSERT_TRUE(filter->possible(again()));
  int possible = 0;
  for (int n = 0; n < 100'000; n++)
    possible += filter->possible(random());
  EXPECT_LE(possible, 500);
}
