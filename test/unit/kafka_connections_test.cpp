/*
 * kafka_connections_test.cpp: states in the order in which librdkafka's versions tell them.
 */
#include <gtest/gtest.h>

#include "sinks/kafka/kafka_connections.h"

namespace outbox {
namespace {

TEST(KafkaConnections, TheInternalBrokerIsNone) {
  KafkaConnections connections;
  EXPECT_FALSE(connections.on_state(-1, "", 0, "UP"));
  EXPECT_EQ(connections.up(), 0);
}

TEST(KafkaConnections, AFirstConnectionThatBecomesTheBrokersIsOne) {
  KafkaConnections connections;
  EXPECT_TRUE(connections.on_state(-1, "a", 9092, "UP"));
  EXPECT_FALSE(connections.on_state(1, "a", 9092, "UPDATE"));
  EXPECT_FALSE(connections.on_state(1, "a", 9092, "UP"));
  EXPECT_EQ(connections.up(), 1);
  connections.on_state(1, "a", 9092, "DOWN");
  EXPECT_EQ(connections.up(), 0);
  EXPECT_EQ(connections.lost(), 1u);
}

TEST(KafkaConnections, AFirstConnectionMayCloseWhileTheBrokersIsUp) {
  KafkaConnections connections;
  EXPECT_TRUE(connections.on_state(-1, "a", 9092, "UP"));
  EXPECT_TRUE(connections.on_state(1, "a", 9092, "UP"));
  EXPECT_EQ(connections.up(), 1) << "one address";
  connections.on_state(-1, "a", 9092, "DOWN");
  EXPECT_EQ(connections.up(), 1);
  EXPECT_EQ(connections.lost(), 0u) << "no message was sent over it";
  connections.on_state(1, "a", 9092, "DOWN");
  EXPECT_EQ(connections.up(), 0);
}

TEST(KafkaConnections, ABrokerThatCannotBeReachedLosesNothing) {
  KafkaConnections connections;
  for (int i = 0; i < 3; i++)
    for (const char *state : {"TRY_CONNECT", "CONNECT", "DOWN"})
      EXPECT_FALSE(connections.on_state(1, "a", 9092, state));
  EXPECT_EQ(connections.lost(), 0u);
}

TEST(KafkaConnections, CountsTheLossesOfTheBrokerThatIsLostMost) {
  KafkaConnections connections;
  const auto lose = [&](int32_t id, const char *name) {
    connections.on_state(id, name, 9092, "UP");
    connections.on_state(id, name, 9092, "DOWN");
  };
  lose(1, "a");
  lose(2, "b");
  EXPECT_EQ(connections.lost(), 1u) << "an outage of both is one loss";
  lose(2, "b");
  EXPECT_EQ(connections.lost(), 2u);
}

TEST(KafkaConnections, ABrokerIsSilentFromItsOldestRequestWithoutAnAnswer) {
  using std::chrono::seconds;
  const KafkaConnections::Time start{};
  KafkaConnections connections;
  const auto silent = [&](int second) { return connections.silent_since(start + seconds(second)).value_or(-1); };
  connections.on_request(1, start + seconds(1));
  connections.on_request(2, start + seconds(2));
  connections.on_request(2, start + seconds(3));
  EXPECT_EQ(silent(0), -1);
  EXPECT_EQ(silent(2), 1);
  connections.on_answer(1);
  EXPECT_EQ(silent(1), -1);
  EXPECT_EQ(silent(2), 2);
  connections.on_answer(2);
  EXPECT_EQ(silent(2), -1);
  EXPECT_EQ(silent(3), 2);
  connections.on_state(2, "b", 9092, "DOWN");
  EXPECT_EQ(silent(9), -1) << "a connection that is gone is not silent";
  connections.on_answer(2); /* of a request that failed with it */
  connections.on_request(2, start + seconds(5));
  EXPECT_EQ(silent(5), 2);
}

}  // namespace
}  // namespace outbox
