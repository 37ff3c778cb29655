#include "dispatch/late_commits.h"

#include <gtest/gtest.h>

using namespace dispatch;

namespace {

using Xids = std::vector<uint64_t>;

TransactionSnapshot snapshot_of(const Xids &running, uint64_t xmax, uint64_t next) {
  return {running.data(), running.size(), xmax, next};
}

/* One round: the transactions that have ended since the last one. */
Xids look(LateCommits *commits, const Xids &running, uint64_t xmax, uint64_t next) {
  commits->find_ended(snapshot_of(running, xmax, next));
  const Xids ended(commits->ended().begin(), commits->ended().end());
  commits->note_running(snapshot_of(running, xmax, next));
  return ended;
}

TEST(DispatchLateCommits, ATransactionThatRanAndRunsNoMoreHasEnded) {
  LateCommits commits;
  EXPECT_EQ(look(&commits, {101, 103}, 105, 105), Xids{}) << "at the start nothing was running before";
  EXPECT_EQ(look(&commits, {103}, 106, 106), Xids{101});
  EXPECT_EQ(look(&commits, {103}, 107, 107), Xids{}) << "each is told once";
  EXPECT_EQ(look(&commits, {}, 108, 108), Xids{103});
}

TEST(DispatchLateCommits, TheYoungestRunningOnesLieAboveTheSnapshotsXmax) {
  LateCommits commits;
  look(&commits, {}, 100, 103); /* 100 to 102 have begun, but the snapshot does not list them */
  EXPECT_EQ(look(&commits, {101}, 103, 103), (Xids{100, 102}));
}

TEST(DispatchLateCommits, AboveXmaxATransactionStillRuns) {
  LateCommits commits;
  look(&commits, {}, 100, 103);
  EXPECT_EQ(look(&commits, {}, 102, 103), (Xids{100, 101}));
  EXPECT_EQ(look(&commits, {}, 103, 103), Xids{102});
}

TEST(DispatchLateCommits, WhatWasNotNotedIsFoundAgain) {
  LateCommits commits;
  const Xids none;
  look(&commits, {101}, 105, 105);
  commits.find_ended(snapshot_of(none, 106, 106)); /* the round fails before their rows are read */
  EXPECT_EQ(look(&commits, {}, 107, 107), Xids{101});
}

TEST(DispatchLateCommits, ARoundThatIsRolledBackHasFoundNothing) {
  LateCommits commits;
  commits.begin_round();
  look(&commits, {101, 102}, 105, 105);
  commits.commit_round();
  commits.begin_round();
  EXPECT_EQ(look(&commits, {102}, 106, 106), Xids{101});
  commits.roll_back_round();
  commits.begin_round();
  EXPECT_EQ(look(&commits, {}, 107, 107), (Xids{101, 102}));
}

TEST(DispatchLateCommits, ARoundThatNotedNothingHasNothingToTakeBack) {
  LateCommits commits;
  commits.begin_round();
  look(&commits, {101}, 105, 105);
  commits.commit_round();
  commits.begin_round();
  commits.roll_back_round();
  EXPECT_EQ(look(&commits, {}, 106, 106), Xids{101});
}

TEST(DispatchLateCommits, TheIdsZeroToTwoOfAnEpochAreNobodys) {
  const uint64_t epoch = uint64_t(1) << 32;
  LateCommits commits;
  look(&commits, {}, epoch - 1, epoch + 4);
  EXPECT_EQ(look(&commits, {}, epoch + 4, epoch + 4), (Xids{epoch - 1, epoch + 3}));
}

TEST(DispatchLateCommits, ATransactionIdGetsTheEpochInWhichItBegan) {
  const uint64_t next = uint64_t(7) << 32 | 1000;
  EXPECT_EQ(xid_with_epoch(999, next), next - 1);
  EXPECT_EQ(xid_with_epoch(1000, next), next);
  EXPECT_EQ(xid_with_epoch(0xfffffff0, next), uint64_t(6) << 32 | 0xfffffff0) << "it began before the wraparound";
}

}  // namespace
