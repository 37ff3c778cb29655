#include "dispatch/locked_rows.h"

#include <set>

#include <gtest/gtest.h>

using namespace dispatch;

namespace {

const Moment ROUND_BEGAN = {3'600'000'000};

void add(LockedRows *rows, int64_t position, SinkId sink, uint64_t key_hash) {
  rows->add(position, sink, key_hash);
}

/* Positions of the rows that a round looks at. */
std::set<int64_t> look(LockedRows *rows, Moment now) {
  std::set<int64_t> positions;
  rows->begin_round(now);
  rows->take_due();
  for (int i = 0; i < rows->look_count(); i++)
    positions.insert(rows->looked(i).position);
  return positions;
}

using Positions = std::set<int64_t>;

TEST(DispatchLockedRows, ARowIsLookedAtAfter200Milliseconds) {
  LockedRows rows;
  EXPECT_EQ(rows.next_moment(), MOMENT_NEVER);
  rows.begin_round(ROUND_BEGAN);
  add(&rows, 7, 1, 11);
  EXPECT_EQ(rows.next_moment(), moment_after(ROUND_BEGAN, 200));
  EXPECT_EQ(look(&rows, moment_after(ROUND_BEGAN, 199)), Positions{});
  EXPECT_EQ(look(&rows, moment_after(ROUND_BEGAN, 200)), Positions{7});
  rows.commit_round();
  EXPECT_EQ(rows.next_moment(), MOMENT_NEVER) << "claimed or gone, until it is added again";
}

TEST(DispatchLockedRows, FiveHundredRowsMakeThePauseFiftyMillisecondsLonger) {
  LockedRows rows;
  rows.begin_round(ROUND_BEGAN);
  for (int i = 1; i <= 1001; i++)
    add(&rows, i, 1, 11);
  EXPECT_EQ(look(&rows, moment_after(ROUND_BEGAN, 249)).size(), 500u);
  EXPECT_EQ(look(&rows, moment_after(ROUND_BEGAN, 299)).size(), 500u);
  EXPECT_EQ(look(&rows, moment_after(ROUND_BEGAN, 300)), Positions{1001});
}

TEST(DispatchLockedRows, ManyRowsTakeFewRounds) {
  LockedRows rows;
  for (int i = 0; i < 5000; i++) { /* found locked in as many rounds */
    rows.begin_round({ROUND_BEGAN.us + i * 100});
    add(&rows, i, 1, 11);
  }
  const Moment end = moment_after(ROUND_BEGAN, 10'000);
  int rounds = 0;
  for (Moment now; (now = rows.next_moment()) < end; rounds++) {
    rows.begin_round({now.us + 700}); /* the worker is a little late */
    rows.take_due();
    for (int i = 0; i < rows.look_count(); i++) /* still locked */
      add(&rows, rows.looked(i).position, 1, 11);
    rows.commit_round();
  }
  EXPECT_LE(rounds, 10'000 / 50);
}

TEST(DispatchLockedRows, ARolledBackRoundLooksAtItsRowsAgain) {
  LockedRows rows;
  rows.begin_round(ROUND_BEGAN);
  add(&rows, 7, 1, 11);
  const Moment second = moment_after(ROUND_BEGAN, 1000);
  EXPECT_EQ(look(&rows, second), Positions{7});
  EXPECT_EQ(rows.first(), POSITION_NONE);
  rows.roll_back_round();
  EXPECT_EQ(rows.first(), 7);
  EXPECT_EQ(rows.first_of_key(1, 11), 7) << "with its key";
  EXPECT_EQ(rows.next_moment(), moment_after(second, 200)) << "an error is no reason to look more often";
}

TEST(DispatchLockedRows, AKeptRowIsListedOnceWhetherTheRoundCommitsOrNot) {
  for (bool committed : {true, false}) {
    LockedRows rows;
    rows.begin_round(ROUND_BEGAN);
    add(&rows, 7, 1, 11);
    EXPECT_EQ(look(&rows, moment_after(ROUND_BEGAN, 1000)), Positions{7});
    rows.keep(0, 1, 11);
    EXPECT_EQ(rows.first_of_key(1, 11), 7) << "already in this round";
    committed ? rows.commit_round() : rows.roll_back_round();
    look(&rows, moment_after(ROUND_BEGAN, 2000));
    EXPECT_EQ(rows.look_count(), 1);
  }
}

/* A user has given it to another sink, which takes no more: the key of its former sink waits for it no longer. */
TEST(DispatchLockedRows, AKeptRowIsListedWithTheSinkThatItHasNow) {
  LockedRows rows;
  rows.begin_round(ROUND_BEGAN);
  add(&rows, 7, 1, 11);
  EXPECT_EQ(look(&rows, moment_after(ROUND_BEGAN, 1000)), Positions{7});
  rows.keep(0, 2, 11);
  EXPECT_EQ(rows.first_of_key(1, 11), POSITION_NONE);
  EXPECT_EQ(rows.first_of_key(2, 11), 7);
}

TEST(DispatchLockedRows, ARolledBackRoundKeepsTheRowsThatItAdded) {
  LockedRows rows;
  rows.begin_round(ROUND_BEGAN);
  add(&rows, 7, 1, 11); /* a former blocker: the state of its key is not rolled back */
  rows.roll_back_round();
  EXPECT_EQ(rows.first(), 7);
}

TEST(DispatchLockedRows, TheFirstRowOfAKeyStopsThatKeyAlone) {
  LockedRows rows;
  rows.begin_round(ROUND_BEGAN);
  for (int64_t position : {9, 5, 6})
    add(&rows, position, 1, 11);
  add(&rows, 3, 2, 11); /* another sink */
  add(&rows, 4, 1, 12); /* another key */
  EXPECT_EQ(rows.first_of_key(1, 11), 5);
  EXPECT_EQ(rows.first_of_key(2, 12), POSITION_NONE);
  EXPECT_EQ(rows.first(), 3);
}

TEST(DispatchLockedRows, TwentyThousandAreEnough) {
  LockedRows rows;
  rows.begin_round(ROUND_BEGAN);
  for (int i = 1; i < 20000; i++)
    add(&rows, i, 1, 11);
  EXPECT_FALSE(rows.full());
  add(&rows, 20000, 1, 11);
  EXPECT_TRUE(rows.full());
}

TEST(DispatchLockedRows, ANewRoundForgetsWhatAFormerOneLookedAt) {
  LockedRows rows;
  rows.begin_round(ROUND_BEGAN);
  add(&rows, 7, 1, 11);
  look(&rows, moment_after(ROUND_BEGAN, 1000));
  rows.begin_round(moment_after(ROUND_BEGAN, 2000));
  rows.roll_back_round();
  EXPECT_EQ(rows.first(), POSITION_NONE);
}

}  // namespace
