/* Which events are tried before they are due, when the reason for which they wait has ended. */
#include "dispatch/early_retry.h"

#include <string>

#include <gtest/gtest.h>

using namespace dispatch;

namespace {

constexpr int64_t SECOND = 1'000'000;
constexpr WallTime RETRY_NOW = 1000 * SECOND;

/* It failed a minute ago, and is due in an hour. */
WaitingRow waiting(std::string_view error) {
  return {RETRY_NOW + 3600 * SECOND, RETRY_NOW - 60 * SECOND, error};
}

TEST(DispatchEarlyRetry, APassFreesTheEventsWhoseErrorBeginsWithTheReason) {
  EarlyRetry retry;
  EXPECT_FALSE(retry.going());
  retry.begin("topic \"a\"", RETRY_NOW);
  EXPECT_TRUE(retry.going());
  EXPECT_EQ(retry.after(), RETRY_NOW) << "rows that are due by now come anyway";
  EXPECT_TRUE(retry.frees(waiting("topic \"a\" does not exist"), RETRY_NOW));
  EXPECT_FALSE(retry.frees(waiting("topic \"b\" does not exist"), RETRY_NOW));
  EXPECT_FALSE(retry.frees(waiting(""), RETRY_NOW));
  retry.begin_all(RETRY_NOW);
  EXPECT_TRUE(retry.frees(waiting("topic \"b\" does not exist"), RETRY_NOW));
  EXPECT_FALSE(retry.frees(waiting("HTTP status 500"), RETRY_NOW));
}

TEST(DispatchEarlyRetry, OnlyEventsThatHaveFailedAndAreNotDueAreFreed) {
  EarlyRetry retry;
  retry.begin("e", RETRY_NOW);
  WaitingRow row = waiting("e");
  row.tried_at = WALL_TIME_NEVER;
  EXPECT_FALSE(retry.frees(row, RETRY_NOW)) << "it is merely scheduled";
  row = waiting("e");
  row.available_at = RETRY_NOW;
  EXPECT_FALSE(retry.frees(row, RETRY_NOW)) << "it is due";
  row = waiting({});
  retry.begin("", RETRY_NOW);
  EXPECT_FALSE(retry.frees(row, RETRY_NOW)) << "no error says why it waits";
}

TEST(DispatchEarlyRetry, AnEventThatFailedAfterTheReasonHadEndedIsNotFreed) {
  EarlyRetry retry;
  retry.begin("e", RETRY_NOW);
  WaitingRow row = waiting("e");
  row.tried_at = RETRY_NOW;
  EXPECT_TRUE(retry.frees(row, RETRY_NOW + 5));
  row.tried_at = RETRY_NOW + 1;
  EXPECT_FALSE(retry.frees(row, RETRY_NOW + 5));
  row.tried_at = RETRY_NOW + 6;
  EXPECT_TRUE(retry.frees(row, RETRY_NOW + 5)) << "a time to come is one of before the clock was set back";
}

TEST(DispatchEarlyRetry, TheEndOfAnOutageFreesWhatWasTriedDuringIt) {
  EarlyRetry retry;
  retry.outage(-1, RETRY_NOW);
  EXPECT_FALSE(retry.going()) << "there was none";
  retry.outage(30'000, RETRY_NOW);
  EXPECT_FALSE(retry.going());
  retry.outage(0, RETRY_NOW + SECOND); /* another one, and the first was not seen to end */
  retry.outage(-1, RETRY_NOW + 2 * SECOND);
  EXPECT_TRUE(retry.going());
  WaitingRow row = waiting("anything");
  row.tried_at = RETRY_NOW - 31 * SECOND;
  EXPECT_TRUE(retry.frees(row, RETRY_NOW + 2 * SECOND)) << "a second before the first failure of the sink";
  row.tried_at--;
  EXPECT_FALSE(retry.frees(row, RETRY_NOW + 2 * SECOND)) << "it waits for something else";
  retry.end_read(false);
  retry.outage(-1, RETRY_NOW + 3 * SECOND);
  EXPECT_FALSE(retry.going()) << "one pass for each outage";
}

TEST(DispatchEarlyRetry, ThePassOfAnOutageWaitsForTheOneThatIsUnderWay) {
  EarlyRetry retry;
  retry.begin("e", RETRY_NOW);
  retry.outage(0, RETRY_NOW);
  retry.outage(-1, RETRY_NOW);
  EXPECT_FALSE(retry.frees(waiting("anything"), RETRY_NOW)) << "the pass goes on for its own reason";
  retry.end_read(false);
  retry.outage(-1, RETRY_NOW);
  EXPECT_TRUE(retry.going());
  retry.begin("e", RETRY_NOW);
  WaitingRow row = waiting("anything");
  row.tried_at = RETRY_NOW;
  EXPECT_FALSE(retry.frees(row, RETRY_NOW)) << "the next reason is one by the error again";
}

TEST(DispatchEarlyRetry, APauseThatAUserEndsFreesWhatWasTriedDuringIt) {
  EarlyRetry retry;
  retry.end_pause();
  retry.pause(0, true, RETRY_NOW);
  EXPECT_FALSE(retry.going()) << "there was none";
  retry.pause(3'600'000, true, RETRY_NOW);
  retry.pause(3'590'000, true, RETRY_NOW + 10 * SECOND);
  retry.end_pause();
  EXPECT_FALSE(retry.going()) << "the sink's next status begins it";
  retry.pause(0, false, RETRY_NOW + 15 * SECOND);
  EXPECT_FALSE(retry.going()) << "the row of the event that got the answer does not tell it yet";
  retry.pause(0, true, RETRY_NOW + 20 * SECOND);
  EXPECT_TRUE(retry.going());
  WaitingRow row = waiting("HTTP 429");
  row.tried_at = RETRY_NOW - SECOND;
  EXPECT_TRUE(retry.frees(row, RETRY_NOW + 20 * SECOND));
  row.tried_at--;
  EXPECT_FALSE(retry.frees(row, RETRY_NOW + 20 * SECOND)) << "it had failed before, for another reason";
  row.tried_at = RETRY_NOW + 21 * SECOND;
  EXPECT_FALSE(retry.frees(row, RETRY_NOW + 22 * SECOND)) << "it failed again";
  retry.end_read(false);
  retry.pause(0, true, RETRY_NOW + 21 * SECOND);
  EXPECT_FALSE(retry.going()) << "one pass for each pause";
}

TEST(DispatchEarlyRetry, APauseThatIsOverByItselfFreesNothing) {
  EarlyRetry retry;
  retry.pause(1000, true, RETRY_NOW);
  retry.pause(0, true, RETRY_NOW + SECOND);
  retry.end_pause();
  retry.pause(0, true, RETRY_NOW + 2 * SECOND);
  EXPECT_FALSE(retry.going()) << "what waited for its end is due";
}

TEST(DispatchEarlyRetry, ThePassOfAPauseWaitsForTheOneThatIsUnderWay) {
  EarlyRetry retry;
  retry.pause(3'600'000, true, RETRY_NOW);
  retry.begin("e", RETRY_NOW);
  retry.end_pause();
  retry.pause(0, true, RETRY_NOW + SECOND);
  EXPECT_FALSE(retry.frees(waiting("anything"), RETRY_NOW + SECOND));
  retry.end_read(false);
  retry.pause(0, true, RETRY_NOW + 2 * SECOND);
  EXPECT_TRUE(retry.going());
}

TEST(DispatchEarlyRetry, APassReadsOnWhereItStopped) {
  EarlyRetry retry;
  retry.begin("e", RETRY_NOW);
  retry.passed(RETRY_NOW + 7, 70);
  retry.end_read(true);
  EXPECT_TRUE(retry.going());
  EXPECT_EQ(retry.after(), RETRY_NOW + 7);
  EXPECT_EQ(retry.after_position(), 70);
  retry.returned();
  EXPECT_TRUE(retry.going());
  EXPECT_EQ(retry.after(), RETRY_NOW) << "the event that came back lies anywhere";
  EXPECT_EQ(retry.after_position(), 0);
  retry.end_read(false);
  EXPECT_FALSE(retry.going());
  retry.returned();
  EXPECT_TRUE(retry.going());
}

TEST(DispatchEarlyRetry, ARoundThatIsRolledBackHasPassedNothing) {
  EarlyRetry retry;
  retry.begin("e", RETRY_NOW);
  retry.passed(RETRY_NOW + 7, 70);
  retry.begin_round();
  retry.passed(RETRY_NOW + 9, 90);
  retry.end_read(false);
  retry.roll_back_round();
  EXPECT_TRUE(retry.going());
  EXPECT_EQ(retry.after(), RETRY_NOW + 7);
  EXPECT_EQ(retry.after_position(), 70);
}

TEST(DispatchEarlyRetry, OfALongReasonTheBeginningCounts) {
  EarlyRetry retry;
  const std::string reason(1000, 'x');
  retry.begin(reason.c_str(), RETRY_NOW);
  EXPECT_TRUE(retry.frees(waiting(reason.substr(0, EarlyRetry::REASON_MAX - 1)), RETRY_NOW));
  EXPECT_FALSE(retry.frees(waiting(reason.substr(0, EarlyRetry::REASON_MAX - 2)), RETRY_NOW));
}

}  // namespace
