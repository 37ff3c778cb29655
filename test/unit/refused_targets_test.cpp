/* Targets that a peer refuses: topics, subjects, routing keys; with a simulated clock. */
#include "delivery/engine/refused_targets.h"

#include <gtest/gtest.h>

using namespace outbox;
using namespace std::chrono_literals;
using Answer = RefusedTargets::Answer;

namespace {

class RefusedTargetsTest : public testing::Test {
protected:
  using Duration = RefusedTargets::Duration;

  bool refuse(const char *target, bool counted = true) {
    return targets.refused(target, std::string(target) + " is full", OB_REASON_TOPIC, counted, now);
  }
  /* A target that takes `room` messages whenever a consumer has emptied it, every `period`; returns how many it took
   * in `time`, and how many tries it refused. */
  std::pair<int, int> fill(int room, Duration period, Duration time) {
    const RefusedTargets::Time begin = now;
    int stored = 0, refusals = 0, here = room;
    RefusedTargets::Time emptied = now;
    for (; now < begin + time; now += 1ms) {
      if (now >= emptied + period) {
        here = 0;
        emptied += period;
      }
      for (int i = 0; i < room * 2; i++) {
        const Answer answer = targets.look_up("a", now);
        if (answer == Answer::Wait || answer == Answer::Defer)
          break;
        const bool counted = answer != Answer::Send;
        if (here < room) {
          here++;
          stored++;
          targets.passed("a", counted, now);
        } else {
          refusals++;
          refuse("a", counted);
        }
      }
      targets.look(now);
    }
    return {stored, refusals};
  }

  RefusedTargets targets;
  RefusedTargets::Time now{1h};
};

TEST_F(RefusedTargetsTest, NothingIsKnownAgainstATargetThatWasNotRefused) {
  EXPECT_EQ(targets.look_up("a", now), Answer::Send);
  EXPECT_FALSE(targets.any());
  EXPECT_EQ(targets.look_at(), RefusedTargets::Time::max());
  EXPECT_FALSE(targets.passed("a", false, now));
  EXPECT_EQ(targets.summary(), "");
}

TEST_F(RefusedTargetsTest, OneMessageTriesEverLessOften) {
  EXPECT_TRUE(refuse("a", false));
  EXPECT_FALSE(refuse("a", false)) << "it was in flight together with the first";
  std::vector<Duration> pauses;
  for (int i = 0; i < 8; i++) {
    const auto until = targets.ready_at("a");
    pauses.push_back(std::chrono::ceil<Duration>(until - now));
    EXPECT_EQ(targets.look_up("a", until - 1ms), Answer::Defer);
    now = until;
    EXPECT_EQ(targets.look_up("a", now), Answer::Try);
    EXPECT_EQ(targets.look_up("a", now + 1h), Answer::Wait) << "one is in flight";
    EXPECT_EQ(targets.look_up("b", now), Answer::Send) << "the others are not concerned";
    refuse("a");
  }
  EXPECT_EQ(pauses, (std::vector<Duration>{500ms, 1s, 2s, 4s, 8s, 16s, 30s, 30s}));
  EXPECT_EQ(targets.summary(), "a is full; its events wait");
}

TEST_F(RefusedTargetsTest, TheNextPauseIsShortWhenSomethingHasPassed) {
  refuse("a", false);
  for (int i = 0; i < 8; i++) {
    now = targets.ready_at("a");
    ASSERT_EQ(targets.look_up("a", now), Answer::Try);
    refuse("a");
  }
  now = targets.ready_at("a");
  ASSERT_EQ(targets.look_up("a", now), Answer::Try);
  EXPECT_TRUE(targets.passed("a", true, now)) << "after a long time without";
  ASSERT_EQ(targets.look_up("a", now), Answer::Few);
  refuse("a");
  EXPECT_EQ(targets.ready_at("a"), now + 10ms);
  EXPECT_EQ(targets.look_up("a", now + 9ms), Answer::Wait) << "in the sink: the table is slower";
  now += 10ms;
  ASSERT_EQ(targets.look_up("a", now), Answer::Try);
  refuse("a");
  EXPECT_EQ(targets.ready_at("a"), now + 20ms);
}

TEST_F(RefusedTargetsTest, ATargetThatPassesGetsMoreAndMoreUntilItIsHealthy) {
  refuse("a", false);
  now += 500ms;
  ASSERT_EQ(targets.look_up("a", now), Answer::Try);
  targets.passed("a", true, now);
  EXPECT_EQ(targets.look_up("a", now), Answer::Few);
  EXPECT_EQ(targets.look_up("a", now), Answer::Few);
  EXPECT_EQ(targets.look_up("a", now), Answer::Wait);
  targets.passed("a", true, now);
  targets.passed("a", true, now);
  for (int i = 0; i < 4; i++)
    EXPECT_EQ(targets.look_up("a", now), Answer::Few);
  EXPECT_EQ(targets.look_up("a", now), Answer::Wait);
  EXPECT_NE(targets.summary(), "") << "it may be full again";
  ASSERT_EQ(targets.look_at(), now + 1s);
  now += 1s;
  RefusedTargets::News news = targets.look(now);
  EXPECT_EQ(news.healthy, std::vector<std::string>{"a"});
  EXPECT_EQ(news.wanted, std::vector<std::string>{"a"});
  EXPECT_FALSE(targets.any());
  targets.passed("a", true, now); /* those in flight may end later */
  EXPECT_EQ(targets.look_up("a", now), Answer::Send);
}

TEST_F(RefusedTargetsTest, AStreamThatIsEmptiedTenTimesASecondTakesAllThatItCan) {
  refuse("a", false);
  auto [stored, refusals] = fill(100, 100ms, 60s);
  EXPECT_GE(stored, 57'000) << "of 60,000";
  EXPECT_LE(refusals, 60 * 10 * 6);
}

TEST_F(RefusedTargetsTest, ATargetThatTakesOneMessageASecondIsNotFlooded) {
  refuse("a", false);
  auto [stored, refusals] = fill(1, 1s, 60s);
  EXPECT_GE(stored, 30);
  EXPECT_LE(refusals, stored * 12);
}

TEST_F(RefusedTargetsTest, ALateAcknowledgementShortensThePause) {
  refuse("a", false);
  now += 1ms;
  EXPECT_FALSE(targets.passed("a", false, now));
  EXPECT_EQ(targets.ready_at("a"), now + 10ms);
  refuse("a", false);
  EXPECT_EQ(targets.ready_at("a"), now + 10ms) << "one of many that were in flight together";
}

TEST_F(RefusedTargetsTest, ATryWithoutAnAnswerIsRepeated) {
  refuse("a", false);
  now += 500ms;
  ASSERT_EQ(targets.look_up("a", now), Answer::Try);
  targets.ended("a", true);
  ASSERT_EQ(targets.look_up("a", now), Answer::Try);
  targets.forget_in_flight();
  EXPECT_EQ(targets.look_up("a", now), Answer::Try);
}

TEST_F(RefusedTargetsTest, OneThatRecoversMakesAllTry) {
  refuse("a", false);
  refuse("b", false);
  for (int i = 0; i < 5; i++) { /* b's pause grows */
    now = targets.ready_at("b");
    ASSERT_EQ(targets.look_up("b", now), Answer::Try);
    refuse("b");
  }
  ASSERT_EQ(targets.look_up("b", now), Answer::Defer);
  ASSERT_EQ(targets.look_up("a", now), Answer::Try);
  EXPECT_TRUE(targets.passed("a", true, now));
  EXPECT_EQ(targets.look_up("b", now), Answer::Try);
  targets.wait("b", now);
  EXPECT_FALSE(targets.passed("b", true, now)) << "the events of all were asked for at this time";
  targets.look_up("a", now);
  targets.look_up("b", now); /* both are busy, so no event is wanted */
  EXPECT_TRUE(targets.look(now + 900ms).wanted.empty());
  targets.passed("b", true, now);
  EXPECT_EQ(targets.look(now + 900ms).wanted, std::vector<std::string>{"b"}) << "it has none to send";
}

TEST_F(RefusedTargetsTest, DeferredEventsComeBackOneAfterTheOther) {
  refuse("a", false);
  refuse("b", false);
  Duration last = 499ms;
  for (int i = 0; i < 10'000; i++) {
    const Duration next = targets.wait(i % 2 ? "a" : "b", now);
    ASSERT_EQ(next, last + 1ms);
    last = next;
  }
}

TEST_F(RefusedTargetsTest, AnEventThatHasTriedComesAfterTheOthers) {
  refuse("a", false);
  EXPECT_EQ(targets.wait("a", now, true), 510ms);
  EXPECT_EQ(targets.wait("a", now), 500ms);
}

TEST_F(RefusedTargetsTest, AnEventOfATargetThatIsBeingTriedIsNotDueAtOnce) {
  refuse("a", false);
  now += 1h;
  ASSERT_EQ(targets.look_up("a", now), Answer::Try);
  EXPECT_EQ(targets.wait("a", now), 10ms);
}

TEST_F(RefusedTargetsTest, AnAnswerWithoutAMessageEndsTheRefusal) {
  EXPECT_FALSE(targets.accepted("a"));
  refuse("a", false);
  EXPECT_TRUE(targets.accepted("a"));
  EXPECT_EQ(targets.look_up("a", now), Answer::Send);
}

TEST_F(RefusedTargetsTest, MemoryIsBounded) {
  for (int i = 0; i < 3000; i++)
    refuse(std::to_string(i).c_str(), false);
  EXPECT_EQ(targets.look_up("999", now), Answer::Defer);
  EXPECT_EQ(targets.look_up("1000", now), Answer::Send);
  EXPECT_GE(targets.wait("1000", now), 30s) << "one that is not remembered";
  EXPECT_EQ(targets.summary(), "0 is full; its events wait, and those of others");
  RefusedTargets::Time end = now + 10min;
  for (; now < end && targets.any(); now = targets.look_at())
    targets.look(now);
  EXPECT_FALSE(targets.any()) << "without events they are forgotten";
}

}  // namespace
