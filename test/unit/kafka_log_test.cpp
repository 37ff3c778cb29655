/* The log of an outage that several producers see. */
#include <gtest/gtest.h>

#include "sinks/kafka/kafka_log.h"

using namespace outbox;
using std::chrono::seconds;

TEST(KafkaLogRepeats, AreTheSameTextWithinHalfAMinute) {
  const KafkaLogRepeats::Time start{};
  KafkaLogRepeats repeats;
  EXPECT_FALSE(repeats.is_repeat("b:9092/1: Connection refused (after 3ms in state CONNECT)", start));
  EXPECT_TRUE(repeats.is_repeat("b:9092/1: Connection refused (after 0ms in state CONNECT)", start + seconds(1)));
  EXPECT_FALSE(repeats.is_repeat("b:9092/2: Connection refused (after 3ms in state CONNECT)", start + seconds(2)));
  EXPECT_TRUE(repeats.is_repeat("b:9092/1: Connection refused", start + seconds(29)))
      << "no repeat prolongs the time";
  EXPECT_FALSE(repeats.is_repeat("b:9092/1: Connection refused", start + seconds(30)));
}

TEST(KafkaLogRepeats, AreForgottenBeforeTheyAreTooMany) {
  KafkaLogRepeats repeats;
  for (int i = 0; i < 1000; i++)
    EXPECT_FALSE(repeats.is_repeat(std::to_string(i), {}));
}
