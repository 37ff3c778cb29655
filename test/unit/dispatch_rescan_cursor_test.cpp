/* How far the rescan queue was read, and when blockers are looked up. */
#include "dispatch/blocker_check.h"
#include "dispatch/rescan_cursor.h"

#include <gtest/gtest.h>

using namespace dispatch;

TEST(DispatchRescanCursor, AFullPageIsFollowedByTheNextOne) {
  RescanCursor cursor;
  EXPECT_EQ(cursor.after(), (RescanPlace{0, 0}));
  cursor.begin_page(100);
  cursor.end_page({50, 7});
  EXPECT_EQ(cursor.after(), (RescanPlace{50, 7}));
}

TEST(DispatchRescanCursor, ThePassAfterBeginsWithTheOldestTransactionThatRanDuringThePass) {
  RescanCursor cursor;
  cursor.begin_page(100);
  cursor.end_page({50, 7});
  cursor.begin_page(120);
  cursor.end_pass();
  EXPECT_EQ(cursor.after(), (RescanPlace{99, INT64_MAX})) << "100 may have added entries to the first page meanwhile";
  cursor.begin_page(130);
  cursor.end_pass();
  EXPECT_EQ(cursor.after(), (RescanPlace{129, INT64_MAX})) << "each pass counts for itself";
}

TEST(DispatchRescanCursor, ThePassAfterBeginsWithTheRowThatHadNoRoom) {
  RescanCursor cursor;
  cursor.begin_page(100);
  cursor.row_kept(40);
  cursor.row_kept(60);
  cursor.end_pass();
  EXPECT_EQ(cursor.after(), (RescanPlace{39, INT64_MAX}));
}

TEST(DispatchRescanCursor, ARoundThatIsRolledBackHasReadNothing) {
  RescanCursor cursor;
  cursor.begin_page(100);
  cursor.end_page({50, 7});
  cursor.begin_round();
  cursor.begin_page(90);
  cursor.end_page({70, 1});
  cursor.roll_back_round();
  EXPECT_EQ(cursor.after(), (RescanPlace{50, 7}));
  cursor.begin_page(110);
  cursor.end_pass();
  EXPECT_EQ(cursor.after(), (RescanPlace{99, INT64_MAX})) << "nor has its snapshot counted";
}

TEST(DispatchRescanCursor, ARestartReadsAllAgainWhetherTheRoundCommitsOrNot) {
  for (bool committed : {true, false}) {
    RescanCursor cursor;
    cursor.begin_page(100);
    cursor.end_page({50, 7});
    cursor.begin_round();
    cursor.restart();
    if (!committed)
      cursor.roll_back_round();
    EXPECT_EQ(cursor.after(), (RescanPlace{0, 0}));
    cursor.begin_page(200);
    cursor.end_pass();
    EXPECT_EQ(cursor.after(), (RescanPlace{199, INT64_MAX}));
  }
}

class DispatchBlockerCheck : public testing::Test {
protected:
  static constexpr int64_t PAUSE_MS = 1000;
  static constexpr Moment BEGIN = {3'600'000'000};

  void block(int n) {
    for (int i = 1; i <= n; i++) {
      keys.block(1, i, i);
    }
  }
  bool wanted_after(int64_t milliseconds) { return check.wanted(keys, moment_after(BEGIN, milliseconds), PAUSE_MS); }

  BlockedKeys keys;
  BlockerCheck check;
};

TEST_F(DispatchBlockerCheck, AFewBlockersAreCheckedEachTime) {
  block(10);
  check.begin(BEGIN);
  EXPECT_FALSE(check.end(keys, true)) << "the check has seen them all";
  check.begin(BEGIN);
  EXPECT_FALSE(check.end(keys, false));
  EXPECT_TRUE(wanted_after(0));
}

TEST_F(DispatchBlockerCheck, ChecksOfManyBlockersAreAPauseApart) {
  block(100000);
  EXPECT_TRUE(wanted_after(0));
  check.begin(BEGIN);
  EXPECT_FALSE(check.end(keys, false));
  EXPECT_FALSE(wanted_after(PAUSE_MS - 1));
  EXPECT_TRUE(wanted_after(PAUSE_MS));
}

TEST_F(DispatchBlockerCheck, WhereBlockersHadLeftTheNextCheckFollowsAtOnce) {
  block(100000);
  check.begin(BEGIN);
  EXPECT_TRUE(check.end(keys, true));
  EXPECT_TRUE(wanted_after(0));
  check.begin(BEGIN);
  EXPECT_FALSE(check.end(keys, false));
  EXPECT_FALSE(wanted_after(0));
}
