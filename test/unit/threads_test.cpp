/* An object that belongs to one thread asserts when another thread calls it. */
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "delivery/http/http_loop.h"
#include "door.h"

namespace {

class ThreadsDeathTest : public testing::Test {
protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(ThreadsDeathTest, AnEngineBelongsToWhoOpenedIt) {
  door::Engine engine;
  EXPECT_DEATH(std::thread([&engine] { engine.collect(); }).join(), "is_callers_thread");
}

TEST_F(ThreadsDeathTest, TransfersBelongToTheLoopsThread) {
  std::shared_ptr<outbox::HttpLoop> loop = outbox::HttpLoop::shared();
  EXPECT_DEATH(loop->keep_connections(1), "is_loop_thread");
}

}  // namespace
