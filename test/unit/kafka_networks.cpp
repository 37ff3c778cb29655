/*
 * kafka_networks.cpp: the brokers of these tests are on this machine, which is refused to a sink whose owner is no
 * superuser. So it is allowed while a test of Kafka runs; tests of HTTP look at what is refused.
 */
#include <gtest/gtest.h>

#include <string_view>

#include "delivery/delivery.h"

namespace {

class AllowThisMachine : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo &test) override {
    if (std::string_view(test.test_suite_name()).find("Kafka") != std::string_view::npos)
      ob_set_networks("127.0.0.0/8, ::1");
  }
  void OnTestEnd(const testing::TestInfo & /*test*/) override { ob_set_networks(""); }
};

const bool is_added = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new AllowThisMachine);
  return true;
}();

}  // namespace
