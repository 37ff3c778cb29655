/* When a Kafka sink opens more producers, with a simulated clock. */
#include <gtest/gtest.h>

#include "sinks/kafka/kafka_growth.h"

using namespace outbox;
using namespace std::chrono_literals;

namespace {

/* Windows of so many events, each of which was in flight for so long. */
int windows_until_growth(KafkaRoundTrips fast, std::chrono::microseconds in_flight, size_t events = 500,
                         size_t bytes_of_a_request = 1000) {
  KafkaGrowth growth;
  KafkaGrowth::Time now{1h};
  for (int n = 1; n <= 10; n++) {
    growth.is_wanted(fast, now);
    now += KafkaGrowth::window;
    growth.acknowledged(events, 10 * bytes_of_a_request, static_cast<int64_t>(events) * in_flight);
    fast.n_produce += 10;
    if (growth.is_wanted(fast, now))
      return n;
  }
  return 0;
}

TEST(KafkaGrowth, IsWantedWhereEventsWaitForAFarBroker) {
  EXPECT_EQ(windows_until_growth({2ms, 2ms}, 20ms), KafkaGrowth::windows_in_a_row);
  EXPECT_EQ(windows_until_growth({2ms, 2ms}, 3ms), 0) << "one request after the other is enough";
  EXPECT_EQ(windows_until_growth({100us, 100us}, 20ms), 0) << "the broker is beside it: more would only cost CPU";
  EXPECT_EQ(windows_until_growth({2ms, 15ms}, 20ms), 0) << "its disk takes most of the time";
  EXPECT_EQ(windows_until_growth({2ms, 2ms}, 20ms, 500, 1'000'000), 0) << "the broker is busy with large requests";
  EXPECT_EQ(windows_until_growth({5ms, 5ms}, 200ms, 500, 100'000), KafkaGrowth::windows_in_a_row);
  EXPECT_EQ(windows_until_growth({0us, 0us}, 20ms), 0) << "nothing is known of the network";
  EXPECT_GT(windows_until_growth({2ms, 2ms}, 20ms, 20), 5 * KafkaGrowth::windows_in_a_row - 3) << "few events";
}

TEST(KafkaGrowth, NeedsWindowsInARow) {
  KafkaGrowth growth;
  KafkaGrowth::Time now{1h};
  const KafkaRoundTrips fast{2ms, 2ms};
  for (int n = 0; n < 20; n++) {
    now += KafkaGrowth::window;
    growth.acknowledged(200, 0, 200 * (n % 2 ? 2ms : 20ms));
    EXPECT_FALSE(growth.is_wanted(fast, now)) << n;
  }
}

TEST(KafkaGrowth, GrowsInTwoStepsToANumberThatSharesFewPartitions) {
  for (auto [partitions, first, second] :
       {std::array{1, 4, 8}, {3, 3, 6}, {7, 4, 7}, {10, 5, 8}, {12, 4, 6}, {100, 5, 8}}) {
    const auto next = [&](int producers) {
      return static_cast<int>(KafkaGrowth::next(static_cast<size_t>(producers), static_cast<size_t>(partitions)));
    };
    EXPECT_EQ(next(1), first) << partitions;
    EXPECT_EQ(next(first), second) << partitions;
    EXPECT_GE(static_cast<size_t>(second), KafkaGrowth::many_producers) << "it stays";
  }
}

TEST(KafkaAnswerTimes, AreThoseThatNothingDelays) {
  KafkaAnswerTimes times;
  for (int i = 0; i < 19; i++)
    times.add(2100us);
  EXPECT_EQ(times.fast(), 0us) << "too few";
  for (int i = 0; i < 300; i++)
    times.add(std::chrono::microseconds(i < 5 ? 20 : i < 60 ? 2100 : 30'000));
  EXPECT_LE(times.fast(), 2100us) << "most answers wait";
  EXPECT_GT(times.fast(), 1700us) << "a few seem to be faster than the network";
  for (int i = 0; i < 10'000; i++)
    times.add(300us);
  EXPECT_LE(times.fast(), 300us) << "the broker has come nearer";
  EXPECT_GT(times.fast(), 240us);
}

TEST(KafkaExtraProducers, AreLimitedForAllSinksTogether) {
  KafkaExtraProducers extra;
  size_t sinks = 0;
  while (extra.take(7))
    sinks++;
  EXPECT_EQ(sinks, KafkaExtraProducers::most / 7);
  EXPECT_FALSE(extra.take(3));
  extra.give_back(7);
  EXPECT_TRUE(extra.take(3));
}

}  // namespace
