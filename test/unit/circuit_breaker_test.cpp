#include "delivery/engine/circuit_breaker.h"

#include "delivery/engine/stall_detector.h"

#include <gtest/gtest.h>

using namespace outbox;
using namespace std::chrono_literals;

namespace {

class CircuitTest : public testing::Test {
protected:
  ob_outcome ends(Outcome outcome, uint64_t ticket = 1, uint64_t key = 0) {
    return circuit.on_result({{outcome}, ticket, key ? key : ticket}, now);
  }
  /* Advances the time until the circuit takes an event; returns how long that took. */
  std::chrono::milliseconds wait_for_credit() {
    auto from = now;
    while (circuit.credit(now) == 0)
      now += 1ms;
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - from);
  }
  void probe(uint64_t ticket) { circuit.on_submit(ticket); }

  CircuitBreaker::Time now{};
  CircuitBreaker circuit{CircuitBreaker::Settings{}, 1};
};

TEST_F(CircuitTest, TakesEverythingWhileClosed) {
  EXPECT_EQ(circuit.credit(now), UINT32_MAX);
  EXPECT_FALSE(circuit.is_open());
  EXPECT_EQ(ends(Outcome::Sent), OB_SENT);
  EXPECT_EQ(ends(Outcome::Retry), OB_RETRY);
  EXPECT_EQ(ends(Outcome::Rejected), OB_REJECTED);
  EXPECT_EQ(ends(Outcome::Returned), OB_RETURNED);
  EXPECT_FALSE(circuit.is_open());
}

TEST_F(CircuitTest, ADownSinkOpensItAndNoAttemptIsSpent) {
  EXPECT_EQ(ends(Outcome::SinkDown), OB_RETURNED);
  EXPECT_TRUE(circuit.is_open());
  EXPECT_EQ(circuit.credit(now), 0u);
  EXPECT_GT(circuit.retry_in_ms(now), 0);
  EXPECT_EQ(ends(Outcome::RetryBlameSink, 2), OB_RETURNED);
}

TEST_F(CircuitTest, TenDifferentKeysInARowOpenIt) {
  for (uint64_t key = 1; key <= 9; key++)
    EXPECT_EQ(ends(Outcome::RetryBlameSink, key, key), OB_RETRY);
  EXPECT_FALSE(circuit.is_open());
  EXPECT_EQ(ends(Outcome::RetryBlameSink, 10, 10), OB_RETURNED);
  EXPECT_TRUE(circuit.is_open());
}

TEST_F(CircuitTest, ManyEventsThatHaveFailedBeforeDoNot) {
  for (uint64_t key = 1; key <= 50; key++) {
    circuit.on_submit(key, true);
    EXPECT_EQ(ends(Outcome::RetryBlameSink, key, key), OB_RETRY);
  }
  EXPECT_FALSE(circuit.is_open());
  for (uint64_t key = 51; key <= 60; key++) {
    circuit.on_submit(key);
    ends(Outcome::RetryBlameSink, key, key);
  }
  EXPECT_TRUE(circuit.is_open()) << "new ones do";
}

TEST_F(CircuitTest, OneKeyThatFailsForEverDoesNot) {
  for (int i = 0; i < 50; i++)
    EXPECT_EQ(ends(Outcome::RetryBlameSink, i, 77), OB_RETRY);
  EXPECT_FALSE(circuit.is_open());
}

TEST_F(CircuitTest, ASuccessInBetweenStartsTheCountAnew) {
  for (uint64_t key = 1; key <= 9; key++)
    ends(Outcome::RetryBlameSink, key, key);
  ends(Outcome::Sent, 100, 100);
  for (uint64_t key = 1; key <= 9; key++)
    EXPECT_EQ(ends(Outcome::RetryBlameSink, key, key), OB_RETRY);
  EXPECT_FALSE(circuit.is_open());
}

TEST_F(CircuitTest, AnswersThatRefuseEachEventOpenIt) {
  for (uint64_t key = 1; key <= 9; key++)
    EXPECT_EQ(ends(key % 2 ? Outcome::Retry : Outcome::RetryBlameSink, key, key), OB_RETRY);
  EXPECT_EQ(ends(Outcome::Retry, 10, 10), OB_RETURNED);
  EXPECT_TRUE(circuit.is_open());
}

TEST_F(CircuitTest, TwoRefusedEventsDoNotHoweverLongNothingSucceeds) {
  for (uint64_t key : {1, 2}) {
    EXPECT_EQ(ends(Outcome::Retry, key, key), OB_RETRY);
    now += 10s;
  }
  EXPECT_EQ(circuit.credit(now), UINT32_MAX);
}

/* A gateway that cannot reach its service answers an invalid event by itself. */
TEST_F(CircuitTest, AnAnswerThatRefusesAnEventDoesNotCloseIt) {
  for (uint64_t key = 1; key <= 10; key++)
    ends(Outcome::RetryBlameSink, key, key);
  wait_for_credit();
  probe(11);
  EXPECT_EQ(ends(Outcome::Retry, 11, 11), OB_RETURNED) << "it may be no fault of this event either";
  EXPECT_TRUE(circuit.is_open());
  wait_for_credit();
  EXPECT_EQ(circuit.credit(now), 2u) << "a good event comes among the probes";
}

TEST_F(CircuitTest, AnAnswerOfAnEventsOwnPeerSaysNothing) {
  for (uint64_t key = 1; key <= 50; key++)
    EXPECT_EQ(ends(Outcome::RetryOwnPeer, key, key), OB_RETRY);
  EXPECT_FALSE(circuit.is_open());
  circuit.down(now);
  wait_for_credit();
  probe(51);
  EXPECT_EQ(ends(Outcome::RetryOwnPeer, 51, 51), OB_RETRY);
  EXPECT_TRUE(circuit.is_open());
  EXPECT_EQ(circuit.credit(now), 1u);
}

TEST_F(CircuitTest, EventsWithoutAKeyCountOneByOne) {
  for (uint64_t i = 1; i <= 9; i++)
    circuit.on_result({{Outcome::RetryBlameSink}, i, 0}, now);
  EXPECT_FALSE(circuit.is_open());
  circuit.on_result({{Outcome::RetryBlameSink}, 10, 0}, now);
  EXPECT_TRUE(circuit.is_open());
}

TEST_F(CircuitTest, AfterTheBackoffOneProbeGoesAndItsSuccessCloses) {
  circuit.down(now);
  auto backoff = wait_for_credit();
  EXPECT_GE(backoff, 150ms);
  EXPECT_LE(backoff, 200ms);
  EXPECT_EQ(circuit.credit(now), 1u);
  EXPECT_TRUE(circuit.is_open());
  probe(5);
  EXPECT_EQ(circuit.credit(now), 0u);
  EXPECT_EQ(circuit.retry_in_ms(now), -1); /* decided when the probe ends */
  EXPECT_EQ(ends(Outcome::Sent, 5), OB_SENT);
  EXPECT_FALSE(circuit.is_open());
  EXPECT_EQ(circuit.credit(now), UINT32_MAX);
}

TEST_F(CircuitTest, FailedProbesWaitLongerAndLonger) {
  circuit.down(now);
  std::chrono::milliseconds expected = 200ms;
  for (uint64_t ticket = 1; ticket < 12; ticket++) {
    auto backoff = wait_for_credit();
    EXPECT_GE(backoff, expected * 3 / 4);
    EXPECT_LE(backoff, expected);
    EXPECT_EQ(circuit.credit(now), 1u);
    probe(ticket);
    EXPECT_EQ(ends(Outcome::SinkDown, ticket), OB_RETURNED);
    expected = std::min<std::chrono::milliseconds>(expected * 2, 5000ms);
  }
  wait_for_credit();
  probe(99);
  ends(Outcome::Sent, 99);
  circuit.down(now); /* from the first backoff again */
  EXPECT_LE(wait_for_credit(), 200ms);
}

TEST_F(CircuitTest, WhatWasUnderWayBeforeDoesNotCountAsAProbe) {
  circuit.down(now);
  wait_for_credit();
  probe(5);
  EXPECT_EQ(ends(Outcome::RetryBlameSink, 1), OB_RETURNED);
  EXPECT_EQ(ends(Outcome::SinkDown, 2), OB_RETURNED);
  EXPECT_EQ(circuit.retry_in_ms(now), -1) << "still waiting for its probe";
  EXPECT_EQ(ends(Outcome::Sent, 3), OB_SENT);
  EXPECT_FALSE(circuit.is_open()) << "but a success is a success";
}

TEST_F(CircuitTest, AProbeThatProvesNothingMakesRoomForAnother) {
  circuit.down(now);
  wait_for_credit();
  for (Outcome outcome : {Outcome::Rejected, Outcome::Returned}) {
    probe(5);
    EXPECT_EQ(circuit.credit(now), 0u);
    ends(outcome, 5);
    EXPECT_TRUE(circuit.is_open());
    EXPECT_EQ(circuit.credit(now), 1u);
  }
}

TEST_F(CircuitTest, OnePoisonousEventCannotKeepItOpen) {
  circuit.down(now);
  wait_for_credit();
  probe(1);
  EXPECT_EQ(ends(Outcome::RetryBlameSink, 1), OB_RETURNED);
  wait_for_credit();
  EXPECT_EQ(circuit.credit(now), 2u);
  probe(1);
  probe(2);
  EXPECT_EQ(ends(Outcome::Sent, 2), OB_SENT);
  EXPECT_FALSE(circuit.is_open());
  EXPECT_EQ(ends(Outcome::RetryBlameSink, 1), OB_RETRY);
}

TEST_F(CircuitTest, AfterASuccessNothingOldOpensItAgain) {
  circuit.down(now);
  wait_for_credit();
  probe(5);
  ends(Outcome::Sent, 5);
  for (uint64_t ticket = 10; ticket < 40; ticket++) /* the result of events that were started before the outage */
    EXPECT_EQ(ends(Outcome::Returned, ticket), OB_RETURNED);
  EXPECT_EQ(circuit.credit(now), UINT32_MAX);
}

TEST_F(CircuitTest, ThePeersWishPutsTheProbeOffWithinReason) {
  for (int64_t wish_s : {30, 3600}) {
    for (uint64_t key = 1; key <= 10; key++)
      circuit.on_result({{Outcome::RetryBlameSink, {}, OB_REASON_NONE, wish_s * 1000}, key, key}, now);
    EXPECT_EQ(circuit.retry_in_ms(now), std::min<int64_t>(wish_s, 300) * 1000);
    circuit = CircuitBreaker({}, 1);
  }
  for (uint64_t key = 1; key <= 10; key++) /* shorter than the backoff, or none */
    circuit.on_result({{Outcome::RetryBlameSink, {}, OB_REASON_NONE, key % 2 ? 1 : -1}, key, key}, now);
  EXPECT_GE(wait_for_credit(), 150ms);
}

TEST_F(CircuitTest, AUserEndsThePauseForWhichThePeerAsked) {
  circuit.down(now);
  wait_for_credit();
  probe(5);
  circuit.on_result({{Outcome::RetryBlameSink, {}, OB_REASON_NONE, 60'000}, 5, 5}, now);
  now += 30s;
  EXPECT_EQ(circuit.credit(now), 0u);
  circuit.end_pause(now);
  EXPECT_EQ(circuit.credit(now), 2u);
  ends(Outcome::Sent, 6);
  circuit.end_pause(now);
  EXPECT_EQ(circuit.credit(now), UINT32_MAX);
}

TEST_F(CircuitTest, RefusalsOpenItTooAndAreProbedSlowly) {
  for (uint64_t key = 1; key <= 9; key++)
    EXPECT_EQ(ends(Outcome::Refused, key, key), OB_RETRY);
  EXPECT_EQ(ends(Outcome::Refused, 10, 10), OB_RETURNED);
  std::chrono::milliseconds expected = 5s;
  for (uint64_t ticket = 1; ticket < 12; ticket++) {
    auto backoff = wait_for_credit();
    EXPECT_GE(backoff, expected * 3 / 4);
    EXPECT_LE(backoff, expected);
    probe(ticket);
    EXPECT_EQ(ends(Outcome::Refused, ticket), OB_RETURNED);
    expected = std::min<std::chrono::milliseconds>(expected * 2, 300s);
  }
  wait_for_credit();
  probe(99);
  EXPECT_EQ(ends(Outcome::SinkDown, 99), OB_RETURNED);
  EXPECT_LE(wait_for_credit(), 5s) << "an outage is probed as outages are";
}

/* ---- few keys: time decides ---- */

TEST_F(CircuitTest, TwoKeysOpenItWhenNothingSucceeds) {
  for (Outcome failure : {Outcome::RetryBlameSink, Outcome::Refused})
    for (bool failed_before : {false, true}) {
      circuit = CircuitBreaker({}, 1);
      for (uint64_t key = 1; key <= 2; key++) {
        circuit.on_submit(key, failed_before);
        EXPECT_EQ(ends(failure, key, key), OB_RETRY);
      }
      now += 199ms;
      EXPECT_EQ(circuit.credit(now), UINT32_MAX) << "something may still succeed";
      now += 1ms;
      EXPECT_EQ(circuit.credit(now), 0u);
      EXPECT_TRUE(circuit.is_open()) << "before the first failure is recorded as an attempt";
      EXPECT_LE(wait_for_credit(), 200ms) << "it may be wrong: it is tried again soon";
    }
}

TEST_F(CircuitTest, ASecondKeyOpensItThatFailsLaterWithoutASuccessInBetween) {
  circuit.on_submit(1, true);
  EXPECT_EQ(ends(Outcome::Refused, 1, 1), OB_RETRY);
  now += 60s;
  circuit.on_submit(2);
  EXPECT_EQ(ends(Outcome::Refused, 2, 2), OB_RETURNED);
  EXPECT_TRUE(circuit.is_open());
}

TEST_F(CircuitTest, OneKeyMayBeItsOwnFaultHoweverLongItFails) {
  for (uint64_t i = 0; i < 100; i++, now += 500ms) {
    circuit.on_submit(i, i > 0);
    EXPECT_EQ(ends(Outcome::RetryBlameSink, i, 77), OB_RETRY);
    EXPECT_EQ(circuit.credit(now), UINT32_MAX);
  }
  for (uint64_t i = 0; i < 100; i++, now += 500ms) { /* the same for one event without a key */
    circuit.on_submit(i, true);
    circuit.on_result({{Outcome::RetryBlameSink}, i, 0}, now);
    EXPECT_EQ(circuit.credit(now), UINT32_MAX);
  }
}

TEST_F(CircuitTest, AFewThatAlwaysFailAreNotTheSinksFaultWhereOthersSucceed) {
  for (int round = 0; round < 50; round++) {
    circuit.on_sent(1000, now);
    for (uint64_t key = 1; key <= 5; key++) {
      circuit.on_submit(key, true);
      EXPECT_EQ(ends(Outcome::RetryBlameSink, key, key), OB_RETRY);
    }
    now += 900ms;
    EXPECT_EQ(circuit.credit(now), UINT32_MAX);
  }
  now += 1h;
  for (uint64_t key = 1; key <= 5; key++) {
    circuit.on_submit(key, true);
    EXPECT_EQ(ends(Outcome::RetryBlameSink, key, key), OB_RETRY);
  }
  now += 1s;
  EXPECT_EQ(circuit.credit(now), UINT32_MAX) << "they failed while others succeeded, and would hold those up";
  for (uint64_t key = 6; key <= 7; key++) {
    circuit.on_submit(key, true);
    ends(Outcome::RetryBlameSink, key, key);
  }
  now += 200ms;
  EXPECT_EQ(circuit.credit(now), 0u) << "nothing has succeeded since these two have begun to fail";
}

TEST_F(CircuitTest, ASuccessAmongFewFailuresAcquitsTheSink) {
  for (Outcome alive : {Outcome::Sent, Outcome::Retry}) {
    ends(Outcome::RetryBlameSink, 1, 1);
    ends(Outcome::RetryBlameSink, 2, 2);
    ends(alive, 3, 3);
    now += 10s;
    EXPECT_EQ(circuit.credit(now), UINT32_MAX);
  }
}

TEST_F(CircuitTest, FewKeysMayWishAPauseToo) {
  for (uint64_t key = 1; key <= 2; key++)
    circuit.on_result({{Outcome::RetryBlameSink, {}, OB_REASON_NONE, 30'000}, key, key}, now);
  now += 250ms;
  EXPECT_EQ(circuit.credit(now), 0u);
  EXPECT_EQ(circuit.retry_in_ms(now), 30'000);
}

TEST_F(CircuitTest, ProbesBecomeSoManyThatAGoodEventIsAmongThem) {
  circuit.down(now);
  uint64_t ticket = 1;
  for (uint32_t width : {1, 2, 4, 8, 16, 32, 64, 100, 100}) {
    wait_for_credit();
    EXPECT_EQ(circuit.credit(now), width);
    probe(++ticket);
    ends(Outcome::RetryBlameSink, ticket);
  }
}

TEST_F(CircuitTest, EventsThatAlwaysFailMakeRoomForOthersWhileItIsOpen) {
  circuit.down(now);
  for (uint64_t ticket = 1; ticket <= 3; ticket++) {
    wait_for_credit();
    circuit.on_submit(ticket, true);
    EXPECT_EQ(ends(Outcome::RetryBlameSink, ticket), OB_DEFERRED);
    EXPECT_EQ(circuit.defer_ms(), 5000);
  }
  for (uint64_t ticket = 4; ticket <= 100; ticket++) {
    circuit.on_submit(ticket, true);
    EXPECT_EQ(ends(Outcome::RetryBlameSink, ticket), OB_DEFERRED) << "also one that is no probe any more";
  }
  EXPECT_EQ(circuit.defer_ms(), 100'000) << "the more there are, the longer one round of them takes";
  wait_for_credit();
  probe(101);
  EXPECT_EQ(ends(Outcome::RetryBlameSink, 101), OB_RETURNED) << "no attempt of it was spent, and none is now";
  circuit.up(now);
  wait_for_credit();
  now += 1s;
  circuit.credit(now);
  EXPECT_EQ(circuit.defer_ms(), 5000);
}

TEST_F(CircuitTest, AnAttemptIsSpentWhileItIsOpenOnlyWhereOthersHaveSucceededSince) {
  ends(Outcome::RetryBlameSink, 1, 1);
  circuit.on_sent(2, now);
  circuit.down(now);
  wait_for_credit();
  probe(3);
  EXPECT_EQ(ends(Outcome::RetryBlameSink, 3, 1), OB_RETRY) << "it makes room for the events behind it";
  wait_for_credit();
  probe(4);
  EXPECT_EQ(ends(Outcome::RetryBlameSink, 4, 1), OB_RETURNED) << "nothing has succeeded since";
}

/* The peer was away, and is back; the only event there is, or the one that all others wait behind, always fails. */
TEST_F(CircuitTest, AKeyThatFailsAloneSpendsAttemptsFromTheThirdProbeOn) {
  for (int outage = 0; outage < 2; outage++) {
    circuit.down(now);
    for (uint64_t ticket = 1; ticket <= 6; ticket++) {
      wait_for_credit();
      circuit.on_submit(ticket, ticket > 3);
      EXPECT_EQ(ends(Outcome::RetryBlameSink, ticket, 7), ticket < 3 ? OB_RETURNED : OB_RETRY) << ticket;
    }
    now += 6s; /* there is nothing else to send */
    circuit.up(now);
    circuit.credit(now);
    now += 1s;
    ASSERT_EQ(circuit.credit(now), UINT32_MAX);
  }
}

TEST_F(CircuitTest, ASecondKeyThatFailsSpendsNone) {
  circuit.down(now);
  for (uint64_t ticket = 1; ticket <= 20; ticket++) {
    wait_for_credit();
    probe(ticket);
    EXPECT_EQ(ends(Outcome::RetryBlameSink, ticket, ticket == 2 ? 8 : 7), OB_RETURNED) << ticket;
  }
}

TEST_F(CircuitTest, NeitherDoesAKeyOfTheTwoThatOpenedIt) {
  for (uint64_t key : {7, 8})
    EXPECT_EQ(ends(Outcome::RetryBlameSink, key, key), OB_RETRY);
  now += 1s;
  EXPECT_EQ(circuit.credit(now), 0u) << "nothing has succeeded";
  for (uint64_t ticket = 1; ticket <= 20; ticket++) {
    wait_for_credit();
    probe(ticket);
    EXPECT_EQ(ends(Outcome::RetryBlameSink, ticket, 7), OB_RETURNED) << ticket;
  }
}

TEST_F(CircuitTest, NeitherDoesAKeyThatIsProbedTogetherWithAnother) {
  circuit.down(now);
  wait_for_credit();
  probe(1);
  ends(Outcome::RetryBlameSink, 1, 7);
  for (uint64_t ticket = 2; ticket <= 20; ticket += 2) {
    wait_for_credit();
    probe(ticket);
    probe(ticket + 1);
    EXPECT_EQ(ends(Outcome::RetryBlameSink, ticket, 7), OB_RETURNED);
    EXPECT_EQ(ends(Outcome::RetryBlameSink, ticket + 1, 8), OB_RETURNED);
  }
}

TEST_F(CircuitTest, APeerThatCannotBeReachedCostsALoneKeyNothing) {
  circuit.down(now);
  for (uint64_t ticket = 1; ticket <= 20; ticket++) {
    wait_for_credit();
    probe(ticket);
    EXPECT_EQ(ends(Outcome::SinkDown, ticket, 7), OB_RETURNED);
  }
}

/* ---- the peer can be reached again ---- */

TEST_F(CircuitTest, AReachablePeerIsProbedAtOnceAndASuccessClosesIt) {
  circuit.down(now);
  now += 1ms;
  circuit.up(now);
  EXPECT_EQ(circuit.credit(now), 1u);
  probe(1);
  now += 10s;
  EXPECT_GT(circuit.credit(now, false), 0u);
  EXPECT_TRUE(circuit.is_open()) << "it has taken the connection, and no event";
  ends(Outcome::Sent, 1);
  EXPECT_EQ(circuit.credit(now), UINT32_MAX);
}

TEST_F(CircuitTest, AReachablePeerClosesItWhenThereIsNothingToSend) {
  circuit.down(now);
  EXPECT_EQ(circuit.look_at(), CircuitBreaker::Time::max());
  circuit.up(now);
  now += 999ms;
  EXPECT_EQ(circuit.credit(now), 1u);
  EXPECT_EQ(circuit.look_at(), now + 1ms);
  now += 1ms;
  EXPECT_EQ(circuit.credit(now), UINT32_MAX);
  EXPECT_EQ(circuit.look_at(), CircuitBreaker::Time::max());
}

TEST_F(CircuitTest, AReachablePeerThatFailsLeavesItOpen) {
  for (Outcome failure : {Outcome::SinkDown, Outcome::RetryBlameSink, Outcome::Refused}) {
    circuit.down(now);
    circuit.up(now);
    ASSERT_EQ(circuit.credit(now), 1u);
    probe(1);
    ends(failure, 1);
    for (int i = 0; i < 100; i++)
      circuit.credit(now += 100ms);
    EXPECT_TRUE(circuit.is_open());
    ends(Outcome::Sent, 2);
  }
  circuit.down(now);
  circuit.up(now);
  circuit.down(now);
  for (int i = 0; i < 100; i++)
    circuit.credit(now += 100ms);
  EXPECT_TRUE(circuit.is_open()) << "it cannot be reached any more";
}

TEST_F(CircuitTest, APeerThatIsReachableAgainAndAgainIsNotProbedMoreOften) {
  size_t probes = 0;
  circuit.down(now);
  for (const auto end = now + 60s; now < end; now += 100ms) {
    circuit.up(now);
    if (circuit.credit(now) > 0) {
      probe(++probes);
      ends(Outcome::SinkDown, probes);
    }
  }
  EXPECT_TRUE(circuit.is_open());
  EXPECT_LT(probes, 25u);
  EXPECT_GT(probes, 10u);
}

/* One probe may wait for a part of the peer that is still away. */
TEST_F(CircuitTest, AReachablePeerGetsMoreProbesWhenItAnswersNone) {
  circuit.down(now);
  circuit.up(now);
  uint64_t ticket = 0;
  for (uint32_t more : {1, 1, 2, 4, 8}) {
    ASSERT_EQ(circuit.credit(now, false), more);
    while (more-- > 0)
      probe(++ticket);
    EXPECT_EQ(circuit.credit(now, false), 0u);
    now += 1s;
  }
  ends(Outcome::Returned, 3);
  EXPECT_TRUE(circuit.is_open());
  ends(Outcome::Sent, 7);
  EXPECT_FALSE(circuit.is_open());
}

TEST_F(CircuitTest, BeingToldTwiceDoesNotPutTheProbeOff) {
  circuit.down(now);
  now += 100ms;
  circuit.down(now);
  EXPECT_LE(wait_for_credit(), 100ms);
}

}  // namespace

TEST(StallDetector, OnlyWorkWithoutAnyAcknowledgementIsOne) {
  StallDetector stall;
  StallDetector::Time now{1h};
  EXPECT_FALSE(stall.is_stalled(0, now)) << "nothing to do is no stall";
  stall.on_submit(0, now);
  EXPECT_FALSE(stall.is_stalled(1, now + 29s));
  EXPECT_TRUE(stall.is_stalled(1, now + 30s));
  stall.on_submit(1, now + 29s); /* more events are no progress */
  EXPECT_TRUE(stall.is_stalled(2, now + 30s));
  stall.on_acknowledgement(now + 31s);
  EXPECT_FALSE(stall.is_stalled(1, now + 60s));
  EXPECT_TRUE(stall.is_stalled(1, now + 61s));
  stall.on_submit(0, now + 2h); /* after an idle time */
  EXPECT_FALSE(stall.is_stalled(1, now + 2h + 1s));
}

TEST(StallDetector, BytesThatLeaveAFullSocketAreProgress) {
  StallDetector stall;
  StallDetector::Time now{1h};
  stall.on_submit(0, now);
  EXPECT_FALSE(stall.on_flush(true, 1000, now)) << "the socket was empty";
  EXPECT_FALSE(stall.on_flush(false, 1000, now + 10s)) << "it took nothing";
  EXPECT_TRUE(stall.is_stalled(1, now + 30s));
  EXPECT_FALSE(stall.drains(1000, now + 30s));
  EXPECT_TRUE(stall.on_flush(true, 0, now + 30s));
  EXPECT_FALSE(stall.is_stalled(1, now + 59s));
  EXPECT_FALSE(stall.on_flush(true, 0, now + 40s)) << "it was full no more";
  EXPECT_TRUE(stall.is_stalled(1, now + 60s));
}

TEST(StallDetector, SmallMessagesToAPeerThatHangsAreNone) {
  StallDetector stall;
  StallDetector::Time now{1h};
  stall.on_submit(0, now);
  for (int s = 0; s < 30; s++) {
    stall.on_submit(1, now + std::chrono::seconds(s));
    EXPECT_FALSE(stall.on_flush(true, 0, now + std::chrono::seconds(s)));
  }
  EXPECT_TRUE(stall.is_stalled(2, now + 30s));
  EXPECT_FALSE(stall.drains(0, now + 30s));
  EXPECT_FALSE(stall.drains(100, now + 30s)) << "the socket has not been full";
}

TEST(StallDetector, AFullSocketThatEmptiesIsProgress) {
  StallDetector stall;
  StallDetector::Time now{1h};
  stall.on_submit(0, now);
  stall.on_flush(true, 1000, now);
  stall.on_flush(true, 0, now);
  EXPECT_TRUE(stall.drains(900, now + 30s));
  EXPECT_FALSE(stall.is_stalled(1, now + 59s));
  EXPECT_TRUE(stall.is_stalled(1, now + 60s));
  EXPECT_FALSE(stall.drains(900, now + 60s)) << "the peer takes no more";
  EXPECT_TRUE(stall.drains(0, now + 60s));
  EXPECT_FALSE(stall.drains(0, now + 90s)) << "the peer has all and says nothing";
  stall.on_flush(true, 1000, now + 100s);
  stall.on_submit(0, now + 110s); /* all was acknowledged */
  EXPECT_FALSE(stall.drains(900, now + 140s));
  EXPECT_FALSE(stall.on_flush(true, 0, now + 140s));
}
