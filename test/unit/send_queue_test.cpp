#include "delivery/engine/send_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "delivery/engine/circuit_breaker.h"
#include "test/unit/webhook_fixture.h"

using namespace outbox;

namespace {

struct Parcel {
  uint64_t ticket, key_hash;
  int64_t position;
  size_t size() const { return 1; }
};

/* Each event has a key of its own, and its position as its ticket. */
class HandoverTest : public testing::Test {
protected:
  void submit(std::initializer_list<uint64_t> tickets) {
    for (uint64_t ticket : tickets)
      queue.push({ticket, ticket, static_cast<int64_t>(ticket)});
  }
  /* The tickets of all that may start now. */
  std::vector<uint64_t> start() {
    std::vector<uint64_t> tickets;
    uint64_t serial;
    while (auto parcel = queue.start(false, serial)) {
      tickets.push_back(parcel->ticket);
      serials.push_back(serial);
    }
    return tickets;
  }
  void succeed() {
    queue.succeed(serials);
    serials.clear();
  }
  bool lose() {
    serials.clear();
    const bool blames_one = queue.lost("reset", OB_REASON_CONNECTION);
    queue.report_failures();
    return blames_one;
  }
  using Ids = std::vector<uint64_t>;

  std::shared_ptr<RecordingReporter> reporter = std::make_shared<RecordingReporter>();
  SendQueue<Parcel> queue{reporter, 10, [] {}};
  std::vector<uint64_t> serials;
};

TEST_F(HandoverTest, AfterThreeLossesWithTheSameOldestMessageTheOneThatIsAloneFails) {
  for (int loss = 1; loss <= 3; loss++) {
    submit({1, 2, 3});
    EXPECT_EQ(start(), (Ids{1, 2, 3}));
    EXPECT_FALSE(lose());
  }
  for (const Completion &completion : reporter->completions())
    EXPECT_EQ(completion.outcome, Outcome::Returned);
  submit({1, 2, 3});
  EXPECT_EQ(start(), (Ids{1}));
  succeed();
  EXPECT_EQ(start(), (Ids{2}));
  EXPECT_TRUE(lose());
  const auto completions = reporter->completions();
  const auto failed = std::find_if(completions.begin(), completions.end(),
                                   [](const Completion &each) { return each.outcome == Outcome::RetryBlameSink; });
  ASSERT_NE(failed, completions.end());
  EXPECT_EQ(failed->ticket, 2u);
  EXPECT_EQ(failed->error, "the connection breaks at this event, which was sent alone: reset");
  EXPECT_EQ(completions.back().ticket, 3u);
  EXPECT_EQ(completions.back().outcome, Outcome::Returned);
}

/* It may arrive twice, and its followers may not. */
TEST_F(HandoverTest, WhatWasSentWithoutAnAnswerIsUnanswered) {
  queue.push({1, 7, 1});
  queue.push({2, 7, 2});
  EXPECT_EQ(start(), (Ids{1}));
  EXPECT_FALSE(lose());
  queue.push({1, 7, 1});
  queue.push({2, 7, 2});
  EXPECT_EQ(start(), (Ids{1}));
  EXPECT_TRUE(lose()) << "the one that is to blame";
  queue.push({1, 7, 1});
  queue.push({2, 7, 2});
  EXPECT_EQ(start(), (Ids{1}));
  queue.abandon();
  for (const Completion &completion : reporter->completions())
    EXPECT_EQ(completion.unanswered, completion.ticket == 1) << completion.error;
  EXPECT_EQ(reporter->completions().size(), 6u);
}

TEST_F(HandoverTest, AMessageThatHasBrokenAConnectionIsSentAlone) {
  for (int loss = 1; loss <= 2; loss++) {
    submit({1});
    EXPECT_EQ(start(), (Ids{1}));
    EXPECT_EQ(lose(), loss == 2);
  }
  submit({2, 1, 3});
  EXPECT_EQ(start(), (Ids{2}));
  succeed();
  EXPECT_EQ(start(), (Ids{1}));
  EXPECT_TRUE(lose());
}

TEST_F(HandoverTest, AnotherMessageIsSentBeforeOneThatHasBrokenAConnection) {
  for (int loss = 1; loss <= 2; loss++) {
    submit({1});
    start();
    lose();
  }
  submit({1, 2, 3});
  EXPECT_EQ(start(), (Ids{2}));
  EXPECT_TRUE(lose());
  submit({1, 2, 3});
  EXPECT_EQ(start(), (Ids{3}));
  succeed();
  EXPECT_EQ(start(), (Ids{1}));
  EXPECT_TRUE(lose());
}

/* As the circuit sends probes: first one, then two, four and so on of the messages that wait, the oldest first. */
TEST_F(HandoverTest, APeerThatBreaksAtEveryMessageCostsNoMessageAnAttempt) {
  using Time = CircuitBreaker::Time;
  CircuitBreaker breaker({}, 1);
  Time now{};
  now += std::chrono::hours(1);
  for (int probe = 0; probe < 30; probe++, now += std::chrono::minutes(10)) {
    const auto credit = std::min<uint64_t>(breaker.credit(now), 12);
    for (uint64_t ticket = 1; ticket <= credit; ticket++) {
      submit({ticket});
      breaker.on_submit(ticket);
    }
    start();
    const size_t ended = reporter->completions().size();
    if (!lose())
      breaker.down(now);
    const auto completions = reporter->completions();
    for (size_t i = ended; i < completions.size(); i++)
      EXPECT_EQ(breaker.on_result(completions[i], now), OB_RETURNED) << "probe " << probe;
  }
}

TEST_F(HandoverTest, LossesWithOtherOldestMessagesAreThePeersFault) {
  for (uint64_t loss = 1; loss <= 20; loss++) {
    submit({loss, loss + 100});
    EXPECT_EQ(start(), (Ids{loss, loss + 100}));
    EXPECT_FALSE(lose());
  }
}

TEST_F(HandoverTest, WithNothingInFlightALossBlamesNobody) {
  for (int loss = 1; loss <= 20; loss++) {
    submit({1, 2});
    EXPECT_FALSE(lose());
  }
  submit({1, 2});
  EXPECT_EQ(start(), (Ids{1, 2}));
}

TEST_F(HandoverTest, WhenAllHaveArrivedMessagesGoTogetherAgain) {
  for (int loss = 1; loss <= 3; loss++) {
    submit({1, 2});
    start();
    lose();
  }
  submit({1, 2, 3, 4});
  for (uint64_t alone : {1, 2}) {
    EXPECT_EQ(start(), (Ids{alone}));
    succeed();
  }
  EXPECT_EQ(start(), (Ids{3, 4}));
}

}  // namespace
