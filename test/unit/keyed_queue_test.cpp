#include "delivery/engine/keyed_queue.h"

#include <algorithm>
#include <map>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

using outbox::KeyedQueue;

namespace {

std::vector<int> values(const KeyedQueue<int>::Items &items) {
  std::vector<int> all;
  for (auto &[key, item] : items)
    all.push_back(item);
  return all;
}

}  // namespace

TEST(KeyedQueue, APreferredItemComesNextAndAllOthersKeepTheirOrder) {
  KeyedQueue<int> queue(10);
  for (int key : {1, 2, 3, 4})
    queue.push(key, key);
  EXPECT_EQ(queue.prefer([](int item) { return item == 3; }), 2u);
  EXPECT_EQ(queue.prefer([](int item) { return item == 3; }), 0u);
  EXPECT_EQ(queue.prefer([](int item) { return item == 7; }), 0u);
  for (int item : {3, 1, 2, 4})
    EXPECT_EQ(queue.start(), item);
}

TEST(KeyedQueue, OneOfAKeyAndManyKeysAtOnce) {
  KeyedQueue<int> queue(10);
  queue.push(1, 11);
  queue.push(1, 12);
  queue.push(2, 21);
  queue.push(0, 1);
  queue.push(0, 2);
  EXPECT_EQ(queue.start(), 11);
  EXPECT_EQ(queue.start(), 21);
  EXPECT_EQ(queue.start(), 1);
  EXPECT_EQ(queue.start(), 2);
  EXPECT_EQ(queue.start(), std::nullopt);
  EXPECT_EQ(queue.running(), 4u);
  EXPECT_EQ(queue.queued(), 1u);
  queue.finish(1);
  EXPECT_EQ(queue.start(), 12);
  EXPECT_EQ(queue.queued(), 0u);
}

TEST(KeyedQueue, ConcurrencyBoundsAllKeys) {
  KeyedQueue<int> queue(2);
  for (int i = 1; i <= 5; ++i)
    queue.push(static_cast<uint64_t>(i), i);
  EXPECT_EQ(queue.start(), 1);
  EXPECT_EQ(queue.start(), 2);
  EXPECT_FALSE(queue.can_start());
  EXPECT_EQ(queue.start(), std::nullopt);
  queue.finish(1);
  EXPECT_EQ(queue.start(), 3);
}

TEST(KeyedQueue, AFailingKeyHandsItsFollowersBackInOrder) {
  KeyedQueue<int> queue(1);
  for (int i : {1, 2, 3})
    queue.push(7, i);
  queue.push(8, 80);
  EXPECT_EQ(queue.start(), 1);
  EXPECT_EQ(values(queue.fail(7)), (std::vector<int>{2, 3}));
  EXPECT_EQ(queue.start(), 80);
  queue.push(7, 1);  // the retry
  queue.finish(8);
  EXPECT_EQ(queue.start(), 1);
  EXPECT_EQ(values(queue.fail(7)), std::vector<int>{});
  EXPECT_EQ(queue.running(), 0u);
  EXPECT_EQ(queue.queued(), 0u);
}

TEST(KeyedQueue, DrainKeepsWhatRunsAndItsKey) {
  KeyedQueue<int> queue(1);
  queue.push(1, 11);
  queue.push(1, 12);
  queue.push(2, 21);
  queue.push(2, 22);
  EXPECT_EQ(queue.start(), 11);
  EXPECT_EQ(queue.drain().size(), 3u);
  EXPECT_EQ(queue.queued(), 0u);
  EXPECT_EQ(queue.running(), 1u);
  queue.push(1, 13);
  EXPECT_EQ(queue.start(), std::nullopt);  // 11 still runs
  queue.finish(1);
  EXPECT_EQ(queue.start(), 13);
}

TEST(KeyedQueue, AnyInterleavingKeepsOrderAndLosesNothing) {
  std::mt19937 random(42);
  for (int round = 0; round < 200; ++round) {
    size_t concurrency = 1 + random() % 4;
    KeyedQueue<std::pair<uint64_t, int>> queue(concurrency);
    std::map<uint64_t, int> next_pushed, next_started;
    std::vector<uint64_t> running;
    int pushed = 0, ended = 0, failed = 0;
    while (ended + failed < 200) {
      unsigned dice = random() % 10;
      if (dice < 4 && pushed < 200) {
        uint64_t key = random() % 5;
        queue.push(key, {key, next_pushed[key]++});
        ++pushed;
      } else if (dice < 7) {
        if (auto item = queue.start()) {
          auto [key, number] = *item;
          if (key != 0) {
            EXPECT_EQ(std::count(running.begin(), running.end(), key), 0);
            EXPECT_EQ(number, next_started[key]);
            next_started[key] = number + 1;
          }
          running.push_back(key);
          EXPECT_LE(running.size(), concurrency);
        }
      } else if (!running.empty()) {
        size_t which = random() % running.size();
        uint64_t key = running[which];
        running.erase(running.begin() + static_cast<long>(which));
        if (random() % 5) {
          queue.finish(key);
          ++ended;
        } else {
          auto followers = queue.fail(key);
          for (auto &[its_key, follower] : followers)
            EXPECT_EQ(follower.second, next_started[key]++);
          if (key != 0)
            EXPECT_EQ(next_started[key], next_pushed[key]);
          else
            EXPECT_TRUE(followers.empty());
          failed += 1 + static_cast<int>(followers.size());
        }
      }
    }
    EXPECT_EQ(pushed, 200);
    EXPECT_EQ(queue.queued() + queue.running(), 0u);
  }
}
