/* The order in which the Kafka sink takes the events of a claim. */
#include "sinks/kafka/kafka_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
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
    }
  }
  std::span<const uint32_t> ordered(size_t partitions, size_t lanes) {
    return order.of(all.data(), all.size(), partitions, lanes);
  }
  std::vector<std::string> names;
  std::vector<ob_event> all;
  KafkaOrder order;
};

int32_t partition_of(const ob_text &key, int32_t partitions) {
  return rd_kafka_msg_partitioner_murmur2(nullptr, key.data, key.len, partitions, nullptr, nullptr);
}

}  // namespace

TEST(KafkaOrder, GivesEachProducerPartitionsOfItsOwnWhereTheirNumberAllows) {
  Events events(2000, 2000);
  for (auto [partitions, producers, most] : {std::array{12, 4, 1}, {12, 6, 1}, {100, 8, 2}, {7, 4, 4}}) {
    std::map<int32_t, std::set<uint32_t>> producers_of;
    for (const ob_event &event : events.all)
      producers_of[partition_of(event.key, partitions)].insert(kafka_hash(event.key) %
                                                               static_cast<uint32_t>(producers));
    EXPECT_EQ(producers_of.size(), static_cast<size_t>(partitions));
    for (const auto &[partition, of] : producers_of)
      EXPECT_LE(of.size(), static_cast<size_t>(most)) << partitions << " partitions, " << producers << " producers";
  }
}

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
  std::pair<uint32_t, int32_t> before{UINT32_MAX, -1};
  for (uint32_t index : events.ordered(12, 4)) {
    const ob_event &event = events.all[index];
    const std::pair now{kafka_hash(event.key) % 4, partition_of(event.key, 12)};
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
