/* Probes through the delivery API: their thread, their time limit, and abandoned probes. */
#include <chrono>
#include <fstream>

#include "door.h"
#include "memory_sink.h"
#include "probe_door.h"
#include "patience.h"

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST(Probe, TellsItsSteps) {
  door::EndedProbe probe("memory", {});
  ASSERT_EQ(probe.steps.size(), 1u);
  EXPECT_TRUE(probe.steps[0].ok);
  EXPECT_STREQ(probe.steps[0].name, "connect");
  EXPECT_GE(probe.steps[0].milliseconds, 0);
}

TEST(Probe, OptionsThatDoNotParseAreAStepThatFailed) {
  door::EndedProbe probe("memory", {{"capacity", "many"}});
  ASSERT_EQ(probe.steps.size(), 1u);
  EXPECT_FALSE(probe.steps[0].ok);
  EXPECT_STREQ(probe.steps[0].name, "options");
  EXPECT_NE(std::string(probe.steps[0].message).find("capacity"), std::string::npos) << probe.steps[0].message;
}

TEST(Probe, SecretsOfBadOptionsAreNotTold) {
  door::EndedProbe probe("memory", {{"token", "hush"}});
  ASSERT_EQ(probe.steps.size(), 1u);
  EXPECT_EQ(std::string(probe.steps[0].message).find("hush"), std::string::npos) << probe.steps[0].message;
}

TEST(Probe, TextsOfAPeerAreCleaned) {
  memory::control("colourful").probe_says = "it is \x1b[31mred\n\xff";
  door::EndedProbe probe("memory", {}, 10'000, "colourful");
  ASSERT_EQ(probe.steps.size(), 1u);
  for (const std::string text : {probe.steps[0].message, probe.steps[0].hint}) {
    EXPECT_NE(text.find("red"), std::string::npos) << text;
    EXPECT_EQ(text.find_first_of("\x1b\n\xff"), std::string::npos) << text;
  }
}

TEST(Probe, AnUnknownKindStartsNothing) {
  door::Engine engine;
  ob_error error{};
  EXPECT_EQ(border::probe_start(engine.raw(), "main", "pigeon", {}, {}, 1000, false, &error), nullptr);
  EXPECT_NE(error.message[0], '\0');
}

TEST(Probe, EndsWhenItsTimeIsUp) {
  memory::control("slow").probe_hangs = true;
  auto start = Clock::now();
  door::EndedProbe probe("memory", {}, 300, "slow");
  EXPECT_GE(Clock::now() - start, 300ms);
  ASSERT_EQ(probe.steps.size(), 1u);
  EXPECT_FALSE(probe.steps[0].ok);
}

/* A destructor that hangs (a resolver) must delay neither the results nor a test event. */
TEST(Probe, IsToldBeforeItsRemainsAreGone) {
  struct Remains {
    std::shared_ptr<memory::Hang> hang;
    ~Remains() {
      hang->let_go.get_future().wait();
      hang->gone.set_value();
    }
  };
  for (const bool send : {false, true}) {
    auto hang = std::make_shared<memory::Hang>();
    door::Engine engine;
    memory::control("hanging").remains = std::make_shared<Remains>(hang);
    memory::control("hanging").ends_of_test_events = {outbox::Outcome::Sent};
    door::Probe probe(engine, "memory", {}, {}, 10'000, "hanging", send);
    EXPECT_TRUE(probe.end());
    EXPECT_EQ(probe.steps.size(), send ? 2u : 1u);
    EXPECT_TRUE(probe.ok()) << probe.text();
    hang->let_go.set_value();
    EXPECT_EQ(hang->gone.get_future().wait_for(patient(20s)), std::future_status::ready);
  }
}

TEST(Probe, NobodyWaitsAnyMore) {
  door::Engine engine;
  memory::control("forgotten").probe_hangs = true;
  size_t before = door::threads();
  for (int i = 0; i < 20; i++)
    door::Probe(engine, "memory", {}, {}, 600'000, "forgotten").forget();
  EXPECT_TRUE(engine.until([&] { return door::threads() <= before + 1; }, 60'000, 20))
      << door::threads() << " of " << before;
}

TEST(Probe, AnEngineThatClosesDoesNotWaitForThem) {
  door::Engine engine;
  memory::control("closing").probe_hangs = true;
  door::Probe probe(engine, "memory", {}, {}, 600'000, "closing");
  auto start = Clock::now();
  EXPECT_TRUE(ob_engines_close(engine.release(), 600'000));
  EXPECT_LT(Clock::now() - start, 60s);
  probe.forget();
}

TEST(Probe, ManyAtOnceEachEnds) {
  door::Engine engine;
  size_t before = door::threads();
  {
    std::vector<std::unique_ptr<door::Probe>> probes;
    for (int i = 0; i < 50; i++)
      probes.push_back(std::make_unique<door::Probe>(engine, "memory", door::OptionList{}));
    for (auto &probe : probes)
      EXPECT_TRUE(probe->end() && probe->steps.size() == 1);
  }
  EXPECT_TRUE(engine.until([&] { return door::threads() <= before + 1; }, 60'000, 20));
}

/* ---- the test event ---- */

namespace {

std::vector<ob_probe_step> sends(const char *sink, std::vector<outbox::Outcome> ends, int timeout_ms = 10'000) {
  memory::control(sink).ends_of_test_events = std::move(ends);
  return door::EndedProbe("memory", {}, timeout_ms, sink, true).steps;
}

}  // namespace

TEST(Probe, ATestEventGoesThroughASink) {
  const auto steps = sends("tried", {outbox::Outcome::Sent});
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_STREQ(steps[1].name, "send");
  EXPECT_TRUE(steps[1].ok);
  EXPECT_STREQ(steps[1].message, "a test event of type outbox.probe is delivered: number 7");
}

TEST(Probe, ATestEventThatIsRefusedIsAStepThatFailed) {
  for (outbox::Outcome outcome : {outbox::Outcome::Retry, outbox::Outcome::Refused, outbox::Outcome::SinkDown,
                                  outbox::Outcome::RetryBlameSink, outbox::Outcome::Rejected}) {
    const auto steps = sends("refusing", {outcome, outbox::Outcome::Sent});
    ASSERT_EQ(steps.size(), 2u);
    EXPECT_FALSE(steps[1].ok);
    EXPECT_STREQ(steps[1].message, "the peer says no");
    EXPECT_STREQ(steps[1].hint, "Ask the peer.");
  }
}

/* As after a kept connection that was closed. */
TEST(Probe, ATestEventThatIsReturnedIsTriedOnceMore) {
  for (outbox::Outcome outcome : {outbox::Outcome::Returned, outbox::Outcome::Deferred}) {
    EXPECT_TRUE(sends("returning", {outcome, outbox::Outcome::Sent}).at(1).ok);
    EXPECT_FALSE(sends("returning", {outcome, outcome, outbox::Outcome::Sent}).at(1).ok);
  }
}

TEST(Probe, ATestEventWithoutAnAnswerEndsInTime) {
  const auto steps = sends("mute", {}, 300);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_FALSE(steps[1].ok);
  EXPECT_STREQ(steps[1].message, "no answer in time");
}

TEST(Probe, NoTestEventIsSentWhereConnectingFails) {
  memory::control("hanging to send").probe_hangs = true;
  EXPECT_EQ(sends("hanging to send", {outbox::Outcome::Sent}, 100).size(), 1u);
}
