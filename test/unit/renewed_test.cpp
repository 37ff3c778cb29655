#include "delivery/identity/renewed.h"

#include <atomic>
#include <chrono>

#include <gtest/gtest.h>
#include "patience.h"

using namespace outbox;
using namespace std::chrono_literals;

namespace {

template <typename Condition> bool soon(const Condition &condition) {
  auto end = patience_ends(20s);
  while (!condition() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(1ms);
  return condition();
}

Grant<int> grant(int value, std::chrono::milliseconds life) {
  return {value, std::chrono::steady_clock::now() + life};
}

}  // namespace

TEST(Renewed, RenewsBeforeTheEnd) {
  std::atomic<int> made{0};
  std::atomic<bool> without{false};
  Renewed<int> value([&](const Stop &) { return grant(++made, 3s); });
  ASSERT_TRUE(soon([&] { return value.now().value != nullptr; }));
  ASSERT_TRUE(soon([&] {
    auto now = value.now().value;
    without = without || !now;
    return now && *now == 2;
  }));
  EXPECT_FALSE(without) << "there was a time without a value";
}

TEST(Renewed, KeepsAValueWhileItsRenewalFails) {
  std::atomic<int> attempts{0}, told{0};
  Renewed<int> value(
      [&](const Stop &) {
        if (++attempts > 1)
          throw NotGranted("the peer is down");
        return grant(1, 4s);
      },
      [&] { ++told; });
  ASSERT_TRUE(soon([&] { return !value.now().error.empty(); }));
  auto now = value.now();
  EXPECT_EQ(now.error, "the peer is down");
  ASSERT_NE(now.value, nullptr);
  ASSERT_TRUE(soon([&] { return value.now().value == nullptr; })) << "it has expired";
  EXPECT_GE(told, 2);
}

TEST(Renewed, FetchesAnewWhatAPeerRefused) {
  std::atomic<int> made{0};
  Renewed<int> value([&](const Stop &) { return grant(++made, 1h); });
  ASSERT_TRUE(soon([&] { return value.now().value != nullptr; }));
  auto first = value.now().value;
  value.refused(first);
  ASSERT_TRUE(soon([&] { return value.now().value && *value.now().value == 2; }));
  value.refused(first); /* known already */
  EXPECT_NE(value.now().value, nullptr);
}

TEST(Renewed, EndsWhileAFetchWaits) {
  std::atomic<bool> waits{false};
  auto value = std::make_unique<Renewed<int>>([&](const Stop &stop) -> Grant<int> {
    while (!stop()) {
      waits = true;
      std::this_thread::sleep_for(1ms);
    }
    throw NotGranted("stopped");
  });
  ASSERT_TRUE(soon([&] { return waits.load(); }));
  value.reset();
}
