/* The Kafka topics that are in trouble: pauses and narrow topics, with a clock of the test's. */
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <set>
#include <vector>

#include "delivery/sinks/kafka_topics.h"

using namespace outbox;
using namespace std::chrono_literals;
using Answer = KafkaTopics::Answer;

namespace {

TEST(KafkaTopics, APausedTopicIsTriedByOneEventEverLessOften) {
  KafkaTopics topics;
  KafkaTopics::Time now{};
  EXPECT_EQ(topics.failed("a", 1, "missing", now), 500ms);
  std::vector<KafkaTopics::Duration> pauses;
  for (int i = 0; i < 6; i++) {
    KafkaTopics::Topic *a = topics.find("a");
    ASSERT_NE(a, nullptr);
    EXPECT_EQ(topics.ask(*a, 1, a->until - 1ms), Answer::Wait);
    now = a->until;
    ASSERT_EQ(topics.ask(*a, 1, now), Answer::Go);
    topics.submitted(*a, 7, 1);
    EXPECT_EQ(topics.ask(*a, 1, now + 1h), Answer::Wait) << "one is on its way";
    pauses.push_back(topics.failed("a", 7, "missing", now));
  }
  EXPECT_EQ(pauses, (std::vector<KafkaTopics::Duration>{1000ms, 2000ms, 4000ms, 5000ms, 5000ms, 5000ms}));
  EXPECT_EQ(topics.summary(), "missing");

  KafkaTopics::Topic *a = topics.find("a");
  topics.submitted(*a, 8, 1);
  std::string name;
  EXPECT_TRUE(topics.acknowledged(8, name));
  EXPECT_EQ(name, "a");
  EXPECT_TRUE(topics.empty());
  EXPECT_EQ(topics.summary(), "");
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
  EXPECT_EQ(topics.summary(), "missing; 1 more topic is paused");
}

/* Events with sizes, in order, to one partition whose broker refuses batches with a culprit in them. */
struct Broker {
  KafkaTopics topics;
  KafkaTopics::Time now{};
  std::deque<std::pair<uint64_t, size_t>> queue;
  std::set<uint64_t> sent, dead;
  int requests = 0;

  void run(const std::function<bool(const std::vector<std::pair<uint64_t, size_t>> &)> &refuses) {
    while (!queue.empty() && requests < 10'000) {
      std::vector<std::pair<uint64_t, size_t>> batch;
      size_t bytes = 0;
      while (!queue.empty() && bytes + queue.front().second <= KafkaTopics::widest) {
        KafkaTopics::Topic *topic = topics.find("a");
        auto [event, size] = queue.front();
        if (topic && topics.ask(*topic, size, now) != Answer::Go)
          break;
        if (topic)
          topics.submitted(*topic, event, size);
        batch.push_back(queue.front());
        bytes += size;
        queue.pop_front();
      }
      ASSERT_FALSE(batch.empty()) << "nothing may go";
      requests++;
      now += 1ms;
      bool refused = refuses(batch);
      for (auto at = batch.rbegin(); refused && at != batch.rend(); ++at)
        if (topics.refused("a", at->first, now) > 0)
          dead.insert(at->first);
        else
          queue.push_front(*at);
      std::string name;
      for (auto &[event, size] : batch)
        if (!refused) {
          topics.acknowledged(event, name);
          sent.insert(event);
        }
      topics.drained();
    }
  }
};

TEST(KafkaTopics, TheCulpritOfABatchIsFoundAndItsNeighboursGo) {
  Broker broker;
  for (uint64_t event = 1; event <= 3000; event++)
    broker.queue.emplace_back(event, 300);
  broker.run([](const auto &batch) {
    return std::any_of(batch.begin(), batch.end(), [](auto &each) { return each.first == 1500; });
  });
  EXPECT_EQ(broker.dead, std::set<uint64_t>{1500});
  EXPECT_EQ(broker.sent.size(), 2999u);
  EXPECT_LE(broker.requests, 60);
  EXPECT_TRUE(broker.topics.empty()) << "found: full speed again";
}

TEST(KafkaTopics, BatchesShrinkToWhatTheTopicTakes) {
  Broker broker;
  for (uint64_t event = 1; event <= 30'000; event++)
    broker.queue.emplace_back(event, 300);
  int refusals = 0;
  broker.run([&](const auto &batch) {
    size_t bytes = 0;
    for (auto &[event, size] : batch)
      bytes += size;
    refusals += bytes > 100'000;
    return bytes > 100'000;
  });
  EXPECT_EQ(broker.dead.size(), 0u);
  EXPECT_EQ(broker.sent.size(), 30'000u);
  EXPECT_EQ(refusals, 4) << "1 MB, 500, 250, 125 kB";
  EXPECT_LE(broker.requests, 160);
}

TEST(KafkaTopics, ANarrowTopicIsTriedWiderAfterAWhile) {
  KafkaTopics topics;
  KafkaTopics::Time now{};
  EXPECT_EQ(topics.refused("a", 1, now), 0u);
  EXPECT_EQ(topics.refused("a", 2, now), 0u) << "another batch of the same moment";
  topics.drained();
  KafkaTopics::Topic *a = topics.find("a");
  EXPECT_EQ(a->limit, KafkaTopics::widest / 2);
  topics.ask(*a, 1, now + 9s);
  EXPECT_EQ(a->limit, KafkaTopics::widest / 2);
  topics.ask(*a, 1, now + 11s);
  EXPECT_EQ(a->limit, KafkaTopics::widest);
  topics.submitted(*a, 3, 1);
  std::string name;
  EXPECT_FALSE(topics.acknowledged(3, name)) << "it was not paused";
  EXPECT_TRUE(topics.empty());
}

}  // namespace
