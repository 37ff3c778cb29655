/* How the event is found at which connections break. */
#include "sinks/kafka/kafka_losses.h"

#include <gtest/gtest.h>

using namespace outbox;

namespace {

using Suspicion = KafkaLosses::Suspicion;

/* So many connections were lost since the producer was made. */
Suspicion lost(KafkaLosses &losses, uint64_t so_far, size_t in_flight, uint64_t oldest) {
  return losses.has_lost(so_far) ? losses.suspect(in_flight, oldest, 1000 * static_cast<int64_t>(oldest))
                                 : Suspicion::None;
}

TEST(KafkaLosses, WithTheSameOldestEventSendItAlone) {
  KafkaLosses losses;
  EXPECT_EQ(lost(losses, 1, 5, 7), Suspicion::None);
  EXPECT_EQ(lost(losses, 1, 5, 7), Suspicion::None) << "no further one was lost";
  EXPECT_EQ(lost(losses, 2, 5, 7), Suspicion::None);
  EXPECT_EQ(lost(losses, 3, 5, 7), Suspicion::Some);
  EXPECT_TRUE(losses.is_alone());
  losses.producer_replaced();
  EXPECT_EQ(lost(losses, 1, 1, 8), Suspicion::None) << "of an event that is alone, one may be chance";
  EXPECT_EQ(lost(losses, 2, 1, 8), Suspicion::One);
  EXPECT_FALSE(losses.is_alone());
  EXPECT_TRUE(losses.is_suspect(8000));
  EXPECT_FALSE(losses.is_suspect(7000));
  losses.send_alone();
  EXPECT_TRUE(losses.is_alone());
  losses.ended(1);
  EXPECT_FALSE(losses.is_alone());
}

TEST(KafkaLosses, BlameASuspectOnlyIfOthersPass) {
  KafkaLosses losses;
  uint64_t n = 0;
  for (int round = 0; round < 3; round++) {
    losses.send_alone();
    n += 2;
    EXPECT_EQ(lost(losses, n, 1, 8), Suspicion::One) << "brokers may break at every event";
  }
  losses.acknowledged();
  losses.send_alone();
  EXPECT_EQ(lost(losses, n + 2, 1, 8), Suspicion::Blamed);
}

TEST(KafkaLosses, WithOtherOldestEventsShowNothing) {
  KafkaLosses losses;
  for (uint64_t so_far = 1; so_far < 50; so_far++)
    EXPECT_EQ(lost(losses, so_far, 5, so_far), Suspicion::None);
  EXPECT_FALSE(losses.is_suspect(0));
}

TEST(KafkaLosses, SeveralAtOnceCountEach) {
  KafkaLosses losses;
  EXPECT_EQ(lost(losses, 3, 2, 1), Suspicion::Some);
  losses.ended(2);
  EXPECT_FALSE(losses.is_alone()) << "as many as were in flight have ended";
}

}  // namespace
