/* The order in which the Kafka sink takes the events of a claim. */
#include "sinks/kafka/kafka_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

using namespace outbox;

namespace {

struct Events {
  explicit Events(size_t n, size_t keys) : names(n), all(n) {
    for (size_t i = 0; i < n; i++) {
      names[i] = std::to_string(i * 7919 % keys);
      all[i].key = {names[i].data(), names[i].size()};
      all[i].key_hash = std::hash<std::string>()(names[i]) | 1;
    }
  }
  std::span<const uint32_t> ordered(size_t partitions, size_t lanes) {
    return order.of(all.data(), all.size(), partitions, lanes,
                    [lanes](const ob_event &event) { return event.key_hash % lanes; });
  }
  std::vector<std::string> names;
  std::vector<ob_event> all;
  KafkaOrder order;
};

}  // namespace

TEST(KafkaOrder, TakesEachEventOnceAndTheEventsOfAKeyInOrder) {
  Events events(5000, 300);
  const auto order = events.ordered(12, 4);
  ASSERT_EQ(order.size(), 5000u);
  EXPECT_EQ(std::set<uint32_t>(order.begin(), order.end()).size(), 5000u);
  std::map<std::string, uint32_t> last;
  for (uint32_t index : order) {
    const auto [at, is_new] = last.insert({events.names[index], index});
    ASSERT_TRUE(is_new || at->second < index);
    at->second = index;
  }
}

TEST(KafkaOrder, BringsThoseOfALaneAndPartitionTogether) {
  Events events(5000, 300);
  size_t changes = 0;
  std::pair<size_t, int32_t> before{SIZE_MAX, -1};
  for (uint32_t index : events.ordered(12, 4)) {
    const ob_event &event = events.all[index];
    const std::pair now{event.key_hash % 4, rd_kafka_msg_partitioner_murmur2(nullptr, event.key.data, event.key.len,
                                                                             12, nullptr, nullptr)};
    changes += now != before;
    before = now;
  }
  EXPECT_LE(changes, 12u * 4);
}

TEST(KafkaOrder, LeavesAFewEventsAndASinglePartitionAsTheyAre) {
  EXPECT_TRUE(Events(20, 10).ordered(12, 1).empty());
  EXPECT_TRUE(Events(5000, 300).ordered(1, 1).empty());
  EXPECT_TRUE(Events(5000, 300).ordered(0, 4).empty()) << "nothing was acknowledged yet";
}
