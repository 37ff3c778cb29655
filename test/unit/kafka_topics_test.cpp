/* Kafka topics with problems: paused and careful ones, with a simulated clock. */
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>
#include <vector>

#include "sinks/kafka/kafka_topics.h"

using namespace outbox;
using namespace std::chrono_literals;
using Answer = KafkaTopics::Answer;

namespace {

std::string summary(const KafkaTopics &topics) {
  KafkaTopics::Paused paused;
  topics.add_paused(paused);
  return KafkaTopics::summary(paused);
}

TEST(KafkaTopics, APausedTopicIsTriedByOneEventEverLessOften) {
  KafkaTopics topics;
  KafkaTopics::Time now{};
  EXPECT_EQ(topics.failed("a", 1, "missing", now), 500ms);
  std::vector<KafkaTopics::Duration> pauses;
  for (int i = 0; i < 6; i++) {
    KafkaTopics::Topic *a = topics.find("a");
    ASSERT_NE(a, nullptr);
    EXPECT_EQ(topics.ask(*a, a->until - 1ms), Answer::Defer);
    now = a->until;
    ASSERT_EQ(topics.ask(*a, now), Answer::Send);
    topics.submitted("a", 7, 1, now);
    EXPECT_EQ(topics.ask(*a, now + 1h), Answer::Defer) << "one is in flight";
    pauses.push_back(topics.failed("a", 7, "missing", now));
  }
  EXPECT_EQ(pauses, (std::vector<KafkaTopics::Duration>{1000ms, 2000ms, 4000ms, 5000ms, 5000ms, 5000ms}));
  EXPECT_EQ(summary(topics), "missing");

  topics.submitted("a", 8, 1, now);
  std::string name;
  EXPECT_TRUE(topics.acknowledged(8, name));
  EXPECT_EQ(name, "a");
  EXPECT_TRUE(topics.empty());
  EXPECT_EQ(summary(topics), "");
}

TEST(KafkaTopics, EventsThatWaitComeBackOneAfterTheOther) {
  KafkaTopics topics;
  KafkaTopics::Time now{};
  topics.failed("a", 1, "missing", now);
  topics.failed("b", 2, "missing too", now);
  KafkaTopics::Duration last{0};
  for (int i = 0; i < 10'000; i++) {
    auto next = topics.wait(*topics.find(i % 2 ? "a" : "b"), now);
    EXPECT_GT(next, last);
    last = next;
  }
  EXPECT_GE(last, 10s) << "at most a thousand per second, of all topics together";
  EXPECT_EQ(summary(topics), "missing; 1 more topic is paused");
}

TEST(KafkaTopics, ATopicThatNoEventAsksForIsForgotten) {
  KafkaTopics topics;
  const KafkaTopics::Time start{};
  topics.failed("a", 1, "missing", start);
  topics.failed("b", 2, "missing too", start);
  EXPECT_EQ(topics.look_at(), start + KafkaTopics::forget_after);
  topics.ask(*topics.find("b"), start + 8s);
  EXPECT_FALSE(topics.forget_unused(start + 9s));
  EXPECT_TRUE(topics.forget_unused(start + 10s));
  EXPECT_EQ(topics.find("a"), nullptr) << "its events were deleted";
  EXPECT_EQ(summary(topics), "missing too");
  EXPECT_EQ(topics.look_at(), start + 18s);

  ASSERT_EQ(topics.ask(*topics.find("b"), start + 11s), Answer::Send);
  topics.submitted("b", 3, 1, start + 11s);
  EXPECT_FALSE(topics.forget_unused(start + 40s)) << "one is in flight";
  topics.failed("b", 3, "missing too", start + 40s);
  EXPECT_TRUE(topics.forget_unused(start + 50s));
  EXPECT_EQ(summary(topics), "");
  EXPECT_EQ(topics.look_at(), KafkaTopics::Time::max());

  topics.refused("c", 4, start + 60s);
  EXPECT_EQ(topics.look_at(), start + 70s);
  EXPECT_FALSE(topics.forget_unused(start + 70s)) << "nothing was said of it";
  EXPECT_TRUE(topics.empty());
}

/* Events in order, to one partition whose broker refuses batches with a culprit. */
struct Broker {
  KafkaTopics topics;
  KafkaTopics::Time now{};
  std::deque<uint64_t> queue;
  std::set<uint64_t> sent, dead;
  int requests = 0, refusals = 0;

  void run(size_t most, const std::set<uint64_t> &culprits) {
    while (!queue.empty() && requests < 10'000) {
      std::vector<uint64_t> batch;
      while (!queue.empty() && batch.size() < most) {
        KafkaTopics::Topic *topic = topics.find("a");
        if (topic && topics.ask(*topic, now) != Answer::Send)
          break;
        topics.submitted("a", queue.front(), 300, now);
        batch.push_back(queue.front());
        queue.pop_front();
      }
      ASSERT_FALSE(batch.empty()) << "nothing may go";
      requests++;
      now += 1ms;
      bool refused = std::any_of(batch.begin(), batch.end(), [&](uint64_t each) { return culprits.count(each) > 0; });
      refusals += refused && batch.size() > 1;
      std::string name;
      for (auto at = batch.rbegin(); at != batch.rend(); ++at)
        if (!refused) {
          EXPECT_FALSE(topics.acknowledged(*at, name)) << "it was not paused";
          sent.insert(*at);
        } else if (topics.refused("a", *at, now) > 0) {
          dead.insert(*at);
        } else {
          queue.push_front(*at);
        }
    }
  }
};

TEST(KafkaTopics, TheCulpritOfABatchIsFoundAndItsNeighboursGo) {
  Broker broker;
  for (uint64_t event = 1; event <= 3000; event++)
    broker.queue.push_back(event);
  broker.run(500, {1600});
  EXPECT_EQ(broker.dead, std::set<uint64_t>{1600});
  EXPECT_EQ(broker.sent.size(), 2999u);
  EXPECT_LE(broker.refusals, 10);
  EXPECT_LE(broker.requests, 250) << "not one for each of the 500 that were refused";
  EXPECT_TRUE(broker.topics.empty()) << "found: full speed again";
}

/* Its partition's broker is silent: the room of the sink is for other topics. */
TEST(KafkaTopics, ACarefulTopicThatDoesNotAnswerIsDeferred) {
  KafkaTopics topics;
  KafkaTopics::Time now{};
  topics.refused("a", 1, now);
  topics.refused("a", 2, now);
  ASSERT_EQ(topics.ask(*topics.find("a"), now), Answer::Send);
  topics.submitted("a", 1, 300, now);
  now += KafkaTopics::longest_silence - 1ms;
  EXPECT_EQ(topics.ask(*topics.find("a"), now), Answer::Queue);
  now += 1ms;
  EXPECT_EQ(topics.ask(*topics.find("a"), now), Answer::Defer);
  EXPECT_GE(topics.wait(*topics.find("a"), now), KafkaTopics::longest_pause);
  EXPECT_EQ(summary(topics), "") << "the topic is not paused";

  /* The producer was replaced: each of the two is still to be sent alone. */
  topics.forget_in_flight();
  for (uint64_t event : {1, 2}) {
    ASSERT_NE(topics.find("a"), nullptr);
    ASSERT_EQ(topics.ask(*topics.find("a"), now), Answer::Send);
    topics.submitted("a", event, 300, now);
    ASSERT_EQ(topics.ask(*topics.find("a"), now), Answer::Queue);
    std::string name;
    EXPECT_FALSE(topics.acknowledged(event, name));
  }
  EXPECT_TRUE(topics.empty());
}

TEST(KafkaTopics, ManyCulpritsCostARequestEach) {
  Broker broker;
  std::set<uint64_t> culprits;
  for (uint64_t event = 1; event <= 2000; event++) {
    broker.queue.push_back(event);
    culprits.insert(event);
  }
  broker.run(500, culprits);
  EXPECT_EQ(broker.dead, culprits);
  EXPECT_EQ(broker.refusals, 4);
  EXPECT_EQ(broker.requests, 2004);
  EXPECT_TRUE(broker.topics.empty());
}

}  // namespace
