#include "dispatch/in_flight.h"

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

using namespace dispatch;

class DispatchInFlight : public testing::Test {
protected:
  InFlightEvent *claim(int64_t position, uint32_t bytes = 100) {
    InFlight::Claimed claimed = {};
    claimed.position = position;
    claimed.key_hash = 7;
    claimed.sink = &sink;
    claimed.bytes = bytes;
    claimed.shard = 3;
    claimed.attempts = 2;
    claimed.row = {11, 12, 13, 14};
    return in_flight.claim(claimed);
  }

  InFlightEvent *submit(int64_t position) {
    InFlightEvent *event = claim(position);
    in_flight.submitted(event, MOMENT_NONE);
    return event;
  }

  InFlightEvent *end(int64_t position, Outcome outcome = Outcome::SENT, const char *error = nullptr) {
    InFlightEvent *event = submit(position);
    in_flight.end(event, outcome, -1, error, {MOMENT_NONE, 1000});
    return event;
  }

  std::vector<int64_t> ended() {
    std::vector<int64_t> positions;
    for (const InFlightEvent *event : in_flight.ended())
      positions.push_back(event->position);
    return positions;
  }

  InFlight in_flight;
  SinkInFlight sink = {}, other_sink = {};
};

TEST_F(DispatchInFlight, AnEventIsClaimedSubmittedEndedRecordedAndOver) {
  InFlightEvent *event = claim(10);
  EXPECT_EQ(event->state, EventState::CLAIMED);
  EXPECT_EQ(event->attempts, 2);
  EXPECT_EQ(event->row.page, 11U);
  EXPECT_EQ(event->row.line, 12);
  EXPECT_EQ(in_flight.count(), 1);
  EXPECT_EQ(sink.of_shard[3], 1U);
  in_flight.submitted(event, {1'000'000});
  EXPECT_EQ(event->state, EventState::IN_FLIGHT);
  EXPECT_FALSE(has_ended(event));
  in_flight.end(event, Outcome::RETRY, 500, "no answer", {{1'042'000}, 1234});
  EXPECT_EQ(event->state, EventState::ENDED);
  EXPECT_EQ(event->outcome, Outcome::RETRY);
  EXPECT_EQ(event->retry_after_ms, 500);
  EXPECT_EQ(event->took_ms, 42);
  EXPECT_EQ(event->ended_at, 1234);
  EXPECT_STREQ(event->error, "no answer");
  EXPECT_EQ(in_flight.n_ended(), 1);
  EXPECT_TRUE(has_ended(event));
  EXPECT_FALSE(is_recorded(event));
  in_flight.recorded(event);
  EXPECT_TRUE(is_recorded(event));
  in_flight.committed(1);
  EXPECT_EQ(event->state, EventState::FREE);
  EXPECT_EQ(in_flight.count(), 0);
  EXPECT_EQ(in_flight.n_ended(), 0);
  EXPECT_EQ(sink.of_shard[3], 0U);
  EXPECT_EQ(in_flight.find(10), nullptr);
}

TEST_F(DispatchInFlight, NothingOfAFormerEventIsLeft) {
  InFlightEvent *event = end(10, Outcome::RETRY, "no answer");
  event->suspect = event->early = event->slow_retry = true;
  event->given_to = 5;
  event->record_after = {99};
  in_flight.record_failed(event);
  in_flight.recorded(event);
  in_flight.committed(1);
  InFlightEvent *next = claim(11);
  ASSERT_EQ(next, event) << "its place is used again";
  EXPECT_FALSE(next->suspect || next->early || next->slow_retry || next->late);
  EXPECT_EQ(next->given_to, 0U);
  EXPECT_EQ(next->record_after, MOMENT_NONE);
  EXPECT_EQ(next->record_failures, 0);
  EXPECT_EQ(next->error, nullptr);
}

TEST_F(DispatchInFlight, ATicketNamesOneFlightOnly) {
  InFlightEvent *event = claim(10);
  const uint64_t ticket = in_flight.ticket(event);
  EXPECT_EQ(in_flight.find_ticket(ticket), nullptr) << "it was not submitted";
  in_flight.submitted(event, MOMENT_NONE);
  EXPECT_EQ(in_flight.find_ticket(ticket), event);
  EXPECT_EQ(in_flight.find_ticket(ticket + 1), nullptr);
  EXPECT_EQ(in_flight.find_ticket(ticket + 1'000'000), nullptr);
  in_flight.end(event, Outcome::SENT, -1, nullptr, {MOMENT_NONE, 0});
  EXPECT_EQ(in_flight.find_ticket(ticket), nullptr) << "it ended before";
  in_flight.recorded(event);
  in_flight.committed(1);
  ASSERT_EQ(submit(11), event);
  EXPECT_EQ(in_flight.find_ticket(ticket), nullptr) << "that is another event now";
}

TEST_F(DispatchInFlight, EventsAreFoundByPosition) {
  for (int64_t position = 1; position <= 10'000; position++)
    claim(position * 3);
  EXPECT_EQ(in_flight.count(), 10'000);
  for (int64_t position = 1; position <= 10'000; position++) {
    ASSERT_NE(in_flight.find(position * 3), nullptr);
    ASSERT_EQ(in_flight.find(position * 3)->position, position * 3);
    ASSERT_EQ(in_flight.find(position * 3 + 1), nullptr);
  }
  for (int64_t position = 2; position <= 10'000; position += 2)
    in_flight.give_back(in_flight.find(position * 3));
  for (int64_t position = 1; position <= 10'000; position++)
    ASSERT_EQ(in_flight.find(position * 3) != nullptr, position % 2 == 1);
  std::set<int64_t> all;
  for (const InFlightEvent *event = in_flight.next(nullptr); event; event = in_flight.next(event))
    all.insert(event->position);
  EXPECT_EQ(all.size(), 5000U);
  EXPECT_TRUE(all.contains(3));
  EXPECT_FALSE(all.contains(6));
}

TEST_F(DispatchInFlight, NumberAndMemoryAreBoundedButOneAlwaysFits) {
  EXPECT_EQ(in_flight.free_events(3, 1000), 3);
  InFlightEvent *event = claim(1, 600);
  EXPECT_EQ(in_flight.free_events(3, 1000), 2);
  EXPECT_EQ(in_flight.free_bytes(1000), 400);
  claim(2, 400);
  EXPECT_EQ(in_flight.free_events(3, 1000), 0);
  in_flight.give_back(event);
  EXPECT_EQ(in_flight.free_events(3, 1000), 2);
  in_flight.give_back(in_flight.find(2));
  claim(3, 5000);
  EXPECT_EQ(in_flight.free_events(3, 1000), 0);
  in_flight.give_back(in_flight.find(3));
  EXPECT_EQ(in_flight.free_events(3, 0), 3);
  claim(4), claim(5), claim(6), claim(7);
  EXPECT_EQ(in_flight.free_events(3, 1000), 0);
}

TEST_F(DispatchInFlight, WhatIsRecordedCountsUntilItIsSafe) {
  in_flight.recorded(end(1));
  in_flight.recorded(end(2));
  end(3);
  in_flight.committed(100);
  EXPECT_EQ(in_flight.unflushed.events(), 2);
  EXPECT_EQ(in_flight.free_events(10, 10'000), 7) << "two unflushed, one not recorded";
  in_flight.unflushed.safe(99);
  EXPECT_EQ(in_flight.unflushed.events(), 2);
  in_flight.unflushed.safe(100);
  EXPECT_EQ(in_flight.free_events(10, 10'000), 9);
  in_flight.committed(200);
  EXPECT_EQ(in_flight.unflushed.events(), 0) << "nothing was recorded";
}

TEST_F(DispatchInFlight, ACommitLeavesWhatWasNotRecordedAndAnAbortAll) {
  in_flight.recorded(end(1));
  InFlightEvent *waiting = end(2);
  in_flight.gone(end(3));
  EXPECT_EQ(in_flight.find(3)->state, EventState::GONE);
  in_flight.aborted();
  EXPECT_EQ(ended(), (std::vector<int64_t>{1, 2, 3}));
  for (int64_t position : {1, 2, 3})
    EXPECT_EQ(in_flight.find(position)->state, EventState::ENDED);
  in_flight.recorded(in_flight.find(1));
  in_flight.gone(in_flight.find(3));
  in_flight.committed(1);
  EXPECT_EQ(ended(), std::vector<int64_t>{2});
  EXPECT_EQ(in_flight.n_ended(), 1);
  EXPECT_EQ(in_flight.count(), 1);
  in_flight.end(submit(4), Outcome::SENT, -1, nullptr, {MOMENT_NONE, 0});
  EXPECT_EQ(ended(), (std::vector<int64_t>{2, 4}));
  in_flight.recorded(waiting);
  in_flight.recorded(in_flight.find(4));
  in_flight.committed(2);
  EXPECT_TRUE(ended().empty());
}

TEST_F(DispatchInFlight, TheNextRecordingIsThatOfTheFirstThatIsDue) {
  EXPECT_EQ(in_flight.next_recording(), MOMENT_NEVER);
  end(1)->record_after = {500};
  EXPECT_EQ(in_flight.next_recording(), Moment{500});
  end(2)->record_after = {300};
  EXPECT_EQ(in_flight.next_recording(), Moment{300});
  end(4)->record_after = {800};
  EXPECT_EQ(in_flight.next_recording(), Moment{300});
  end(3);
  EXPECT_EQ(in_flight.next_recording(), MOMENT_NONE);
}

TEST_F(DispatchInFlight, SuspectsOfASinkLeaveTheList) {
  end(1)->suspect = true;
  end(2);
  end(3)->suspect = true;
  InFlightEvent *others = end(4);
  others->suspect = true;
  sink.of_shard[3]--;
  others->sink = &other_sink;
  other_sink.of_shard[3]++;
  std::vector<int64_t> taken;
  for (InFlightEvent *event = in_flight.take_suspects(&sink), *next = nullptr; event; event = next) {
    next = event->next;
    taken.push_back(event->position);
    in_flight.give_back(event);
  }
  EXPECT_EQ(taken, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(ended(), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(in_flight.n_ended(), 2);
  EXPECT_EQ(in_flight.find(1), nullptr);
  EXPECT_EQ(in_flight.take_suspects(&sink), nullptr);
}

TEST_F(DispatchInFlight, FailuresOfARecordingAreCountedUpToSeven) {
  InFlightEvent *event = end(1);
  for (int i = 0; i < 20; i++)
    in_flight.record_failed(event);
  EXPECT_EQ(event->record_failures, 7);
}

TEST(DispatchUnflushed, AFlushIsWantedWhenHalfTheBoundIsUnflushed) {
  Unflushed unflushed;
  EXPECT_EQ(unflushed.flush_wanted(0), 0U);
  unflushed.add(50, 1000);
  EXPECT_EQ(unflushed.flush_wanted(100), 0U);
  unflushed.add(1, 2000);
  EXPECT_EQ(unflushed.flush_wanted(100), 2000U);
  unflushed.safe(1999);
  EXPECT_EQ(unflushed.events(), 1);
  EXPECT_EQ(unflushed.flush_wanted(100), 0U);
  unflushed.safe(2000);
  EXPECT_EQ(unflushed.events(), 0);
}

TEST(DispatchUnflushed, OneThatIsFullWantsAFlushAndLosesNothing) {
  Unflushed unflushed;
  for (uint64_t lsn = 1; lsn <= 256; lsn++) {
    EXPECT_EQ(unflushed.flush_wanted(1'000'000), 0U);
    unflushed.add(1, lsn);
  }
  EXPECT_EQ(unflushed.flush_wanted(1'000'000), 256U);
  unflushed.add(1, 300);
  EXPECT_EQ(unflushed.events(), 257);
  unflushed.safe(299);
  EXPECT_EQ(unflushed.events(), 2) << "the last two become safe together";
  unflushed.safe(300);
  EXPECT_EQ(unflushed.events(), 0);
}

TEST_F(DispatchInFlight, AJumpBetweenStatesIsAFault) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  InFlightEvent *event = claim(1);
  EXPECT_DEATH(in_flight.recorded(event), "may_follow");
  in_flight.give_back(event);
  EXPECT_DEATH(in_flight.give_back(event), "may_follow");
}

/* Recordings may wait for a lock while thousands of events fail. */
TEST_F(DispatchInFlight, ErrorsThatWaitTakeLittleMemory) {
  const std::string error = std::string(8186, 'x') + "\u00fc\u00fc\u00fc";
  size_t total = 0;
  for (int64_t position = 1; position <= 10'000; position++)
    total += std::string(end(position, Outcome::RETRY, error.c_str())->error).size();
  EXPECT_LT(total, 10U * 1024 * 1024) << "10,000 whole ones take 80 MB";
  EXPECT_EQ(in_flight.find(1)->error, error);
  const std::string last = in_flight.find(10'000)->error;
  EXPECT_TRUE(last.starts_with(std::string(400, 'x')) && last.ends_with("xx [cut]")) << last;
  EXPECT_LE(last.size(), 512U);
  EXPECT_STREQ(end(10'001, Outcome::RETRY, "short")->error, "short");
  for (int64_t position = 1; position <= 10'001; position++)
    in_flight.recorded(in_flight.find(position));
  in_flight.committed(1);
  EXPECT_EQ(end(10'002, Outcome::RETRY, error.c_str())->error, error) << "what was recorded takes no more";
}
