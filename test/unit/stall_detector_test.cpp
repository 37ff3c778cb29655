#include "delivery/engine/stall_detector.h"

#include <gtest/gtest.h>

using outbox::StallDetector;
using namespace std::chrono_literals;

TEST(StallDetector, OnlyWorkWithoutAnyAcknowledgementIsOne) {
  StallDetector stall;
  StallDetector::Time now{1h};
  EXPECT_FALSE(stall.is_stalled(0, now)) << "nothing to do is no stall";
  stall.on_submit(0, now);
  EXPECT_FALSE(stall.is_stalled(1, now + 29s));
  EXPECT_TRUE(stall.is_stalled(1, now + 30s));
  stall.on_submit(1, now + 29s); /* more events are no progress */
  EXPECT_TRUE(stall.is_stalled(2, now + 30s));
  stall.on_acknowledgement(now + 31s);
  EXPECT_FALSE(stall.is_stalled(1, now + 60s));
  EXPECT_TRUE(stall.is_stalled(1, now + 61s));
  stall.on_submit(0, now + 2h); /* after an idle time */
  EXPECT_FALSE(stall.is_stalled(1, now + 2h + 1s));
}
