#include "dispatch/blocked_keys.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

using namespace dispatch;

class DispatchBlockedKeys : public testing::Test {
protected:
  static constexpr SinkId SINK = 16400, OTHER_SINK = 16401;
  static constexpr uint64_t KEY = 0x1234567800000001, OTHER_KEY = 0x1234567800000002;

  /* The blocker that was replaced. */
  int64_t block(SinkId sink, uint64_t key_hash, int64_t position) { return keys.block(sink, key_hash, position); }

  void drain(SinkId sink, uint64_t key_hash, int64_t group) { keys.drain(sink, key_hash, group); }

  /* The group with which the row is marked. */
  int64_t mark(uint64_t key_hash, int64_t group, int64_t position) {
    return keys.marked(SINK, key_hash, group, position);
  }

  KeyState state(uint64_t key_hash = KEY) {
    const BlockedKey *key = keys.find(SINK, key_hash);
    return key ? key->state : KeyState::FREE;
  }

  std::vector<uint64_t> next_draining(size_t max) {
    std::vector<uint64_t> hashes(max);
    hashes.resize(keys.next_draining(SINK, hashes));
    return hashes;
  }

  BlockedKeys keys;
};

TEST_F(DispatchBlockedKeys, ANewKeyDrainsFromItsFirstMarkedRow) {
  keys.drain(SINK, KEY, 7, 20);
  EXPECT_FALSE(keys.find(SINK, KEY)->may_have_undrained_before(20));
  EXPECT_TRUE(keys.find(SINK, KEY)->may_have_undrained_before(21));
  EXPECT_EQ(keys.lowest(SINK), 20);
  keys.drain(SINK, KEY, 7, 30);
  EXPECT_EQ(keys.lowest(SINK), 20) << "it is not new";
}

TEST_F(DispatchBlockedKeys, AKeyIsBlockedThenDrainsThenIsFree) {
  EXPECT_FALSE(keys.any());
  EXPECT_EQ(state(), KeyState::FREE);
  EXPECT_EQ(block(SINK, KEY, 10), 0);
  EXPECT_TRUE(keys.any());
  EXPECT_EQ(state(), KeyState::BLOCKED);
  EXPECT_EQ(keys.find(SINK, KEY)->blocker, 10);
  EXPECT_EQ(keys.find(SINK, KEY)->group, 10);
  EXPECT_FALSE(keys.any_draining(SINK));
  keys.release(SINK, KEY, 10);
  EXPECT_EQ(state(), KeyState::DRAINING);
  EXPECT_TRUE(keys.any_draining(SINK));
  EXPECT_FALSE(keys.any_draining(OTHER_SINK));
  keys.forget(SINK, KEY);
  EXPECT_EQ(state(), KeyState::FREE);
  EXPECT_FALSE(keys.any_draining(SINK));
  EXPECT_FALSE(keys.any());
}

TEST_F(DispatchBlockedKeys, AKeyBelongsToItsSink) {
  block(SINK, KEY, 10);
  EXPECT_EQ(keys.find(OTHER_SINK, KEY), nullptr);
  EXPECT_EQ(keys.find(SINK, OTHER_KEY), nullptr);
  keys.release(OTHER_SINK, KEY, 10);
  keys.release(SINK, OTHER_KEY, 10);
  EXPECT_EQ(state(), KeyState::BLOCKED);
}

TEST_F(DispatchBlockedKeys, AnEventWithoutAKeyBlocksNothing) {
  EXPECT_EQ(block(SINK, 0, 10), 0);
  drain(SINK, 0, 10);
  EXPECT_FALSE(keys.any());
}

TEST_F(DispatchBlockedKeys, TheEarliestEventBlocksAndTheOneItReplacesIsTold) {
  EXPECT_EQ(block(SINK, KEY, 20), 0);
  EXPECT_EQ(block(SINK, KEY, 30), 0);
  EXPECT_EQ(keys.find(SINK, KEY)->blocker, 20);
  EXPECT_EQ(block(SINK, KEY, 20), 0);
  EXPECT_EQ(block(SINK, KEY, 10), 20);
  EXPECT_EQ(keys.find(SINK, KEY)->blocker, 10);
  EXPECT_EQ(keys.find(SINK, KEY)->group, 20) << "the rows behind it are marked so";
  keys.release(20); /* it is no longer the blocker */
  EXPECT_EQ(state(), KeyState::BLOCKED);
  keys.release(10);
  EXPECT_EQ(state(), KeyState::DRAINING);
}

TEST_F(DispatchBlockedKeys, OnlyTheBlockerReleasesItsKey) {
  block(SINK, KEY, 10);
  keys.release(SINK, KEY, 11);
  keys.release(11);
  EXPECT_EQ(state(), KeyState::BLOCKED);
  block(SINK, OTHER_KEY, 20);
  keys.release(SINK, OTHER_KEY, 10);
  EXPECT_EQ(state(), KeyState::BLOCKED) << "that is another key's blocker";
  keys.release(SINK, KEY, 10);
  EXPECT_EQ(state(), KeyState::DRAINING);
}

TEST_F(DispatchBlockedKeys, EventsBehindABlockerAreFound) {
  block(SINK, KEY, 10);
  EXPECT_EQ(keys.find_before(SINK, KEY, 9), nullptr);
  EXPECT_EQ(keys.find_before(SINK, KEY, 10), nullptr);
  ASSERT_NE(keys.find_before(SINK, KEY, 11), nullptr);
  EXPECT_EQ(keys.find_before(SINK, KEY, 11)->blocker, 10);
  keys.release(10);
  EXPECT_EQ(keys.find_before(SINK, KEY, 11), nullptr) << "nothing blocks a draining key";
}

TEST_F(DispatchBlockedKeys, ADrainingKeyIsBlockedByItsNextFailingEvent) {
  block(SINK, KEY, 10);
  keys.release(10);
  keys.drained_to(SINK, KEY, 15);
  EXPECT_EQ(block(SINK, KEY, 20), 0);
  EXPECT_EQ(state(), KeyState::BLOCKED);
  EXPECT_FALSE(keys.any_draining(SINK));
  EXPECT_EQ(keys.find(SINK, KEY)->group, 10) << "those behind are marked so still";
  keys.release(20);
  EXPECT_EQ(keys.find(SINK, KEY)->drained, 0) << "it drains from its first marked row";
}

TEST_F(DispatchBlockedKeys, ARowThatHasAnotherKeyNowReleasesItsFormerOne) {
  block(SINK, KEY, 10);
  block(SINK, OTHER_KEY, 10);
  EXPECT_EQ(state(KEY), KeyState::DRAINING);
  EXPECT_EQ(state(OTHER_KEY), KeyState::BLOCKED);
  keys.release(10);
  EXPECT_EQ(state(OTHER_KEY), KeyState::DRAINING);

  block(SINK, KEY, 30);
  keys.row_seen(SINK, KEY, 30);
  EXPECT_EQ(state(KEY), KeyState::BLOCKED);
  keys.row_seen(OTHER_SINK, KEY, 30);
  EXPECT_EQ(state(KEY), KeyState::DRAINING);
  block(SINK, KEY, 30);
  keys.row_seen(0, KEY, 30);
  EXPECT_EQ(state(KEY), KeyState::DRAINING);
}

TEST_F(DispatchBlockedKeys, MarkedRowsThatARestartFindsDrain) {
  drain(SINK, KEY, 7);
  EXPECT_EQ(state(), KeyState::DRAINING);
  EXPECT_EQ(keys.find(SINK, KEY)->group, 7);

  block(SINK, OTHER_KEY, 10);
  drain(SINK, OTHER_KEY, 8);
  EXPECT_EQ(state(OTHER_KEY), KeyState::BLOCKED);
  EXPECT_EQ(keys.find(SINK, OTHER_KEY)->group, 8);
}

TEST_F(DispatchBlockedKeys, AKeyComesBackToARowThatIsMarkedBehindItsPlace) {
  drain(SINK, KEY, 7);
  keys.drained_to(SINK, KEY, 50);
  mark(KEY, 7, 60);
  EXPECT_EQ(keys.find(SINK, KEY)->drained, 50);
  mark(KEY, 7, 40);
  EXPECT_EQ(keys.find(SINK, KEY)->drained, 39);
  keys.drain_again_from(SINK, KEY, 30);
  EXPECT_EQ(keys.find(SINK, KEY)->drained, 29);
  keys.drain_all_again();
  EXPECT_EQ(keys.find(SINK, KEY)->drained, 0);

  mark(OTHER_KEY, 9, 20);
  EXPECT_EQ(state(OTHER_KEY), KeyState::DRAINING);
  EXPECT_EQ(keys.find(SINK, OTHER_KEY)->group, 9);
}

TEST_F(DispatchBlockedKeys, DrainingKeysTakeTheirTurns) {
  for (uint64_t hash = 1; hash <= 5; hash++)
    drain(SINK, hash, 1);
  drain(OTHER_SINK, 6, 1);
  block(SINK, 7, 100);
  EXPECT_EQ(next_draining(3), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(next_draining(3), (std::vector<uint64_t>{4, 5, 1}));
  EXPECT_EQ(next_draining(9), (std::vector<uint64_t>{2, 3, 4, 5, 1}));
  keys.forget(SINK, 3);
  block(SINK, 4, 101);
  EXPECT_EQ(next_draining(9), (std::vector<uint64_t>{2, 5, 1}));
}

TEST_F(DispatchBlockedKeys, ARowIsMarkedWithTheGroupThatItsKeyHasByThen) {
  block(SINK, KEY, 10);
  EXPECT_EQ(mark(KEY, 10, 12), 10);
  drain(SINK, KEY, 7); /* its rows were read, and have an earlier mark */
  EXPECT_EQ(mark(KEY, 10, 13), 7);
  EXPECT_EQ(mark(OTHER_KEY, 20, 25), 20);
  EXPECT_EQ(state(OTHER_KEY), KeyState::DRAINING) << "it was free";
  EXPECT_EQ(keys.find(SINK, OTHER_KEY)->group, 20);
}

TEST_F(DispatchBlockedKeys, ASinkThatIsGoneTakesItsKeysAlong) {
  block(SINK, KEY, 10);
  drain(SINK, OTHER_KEY, 7);
  block(OTHER_SINK, KEY, 11);
  keys.forget_sink(SINK);
  EXPECT_EQ(state(KEY), KeyState::FREE);
  EXPECT_EQ(state(OTHER_KEY), KeyState::FREE);
  EXPECT_NE(keys.find(OTHER_SINK, KEY), nullptr);
  block(SINK, KEY, 10);
  EXPECT_EQ(state(KEY), KeyState::BLOCKED);
}

TEST_F(DispatchBlockedKeys, AShardThatIsGivenAwayTakesItsKeysAlong) {
  ShardSet shards = {};
  shards.add(70);
  block(SINK, 70, 10);
  block(SINK, 256 + 70, 11);
  block(SINK, 71, 12);
  drain(SINK, 6, 7);
  block(OTHER_SINK, 71, 13);
  keys.forget_unknown(SINK, shards);
  EXPECT_EQ(state(70), KeyState::BLOCKED);
  EXPECT_EQ(state(256 + 70), KeyState::BLOCKED);
  EXPECT_EQ(state(71), KeyState::FREE);
  EXPECT_EQ(state(6), KeyState::FREE);
  EXPECT_NE(keys.find(OTHER_SINK, 71), nullptr);
  keys.forget_unknown(SINK + 9, shards);
}

TEST_F(DispatchBlockedKeys, ManyKeysOfAShardThatIsGivenAwayAreForgottenInSteps) {
  const uint64_t n = 300'000;
  ShardSet known = {};
  for (int shard = 0; shard < SHARDS; shard += 4)
    known.add(shard);
  for (uint64_t hash = 1; hash <= n; hash++)
    if (hash % 2 == 0)
      block(SINK, hash, static_cast<int64_t>(hash));
    else
      drain(SINK, hash, static_cast<int64_t>(hash));
  block(OTHER_SINK, 1, 1'000'001);
  uint64_t before = keys.visited();
  keys.forget_unknown(SINK, known);
  EXPECT_LE(keys.visited() - before, BlockedKeys::VISITED_MAX);
  EXPECT_TRUE(keys.is_forgetting());
  for (uint64_t hash = 1; hash <= n; hash++)
    ASSERT_EQ(keys.find(SINK, hash) != nullptr, known.has(shard_of(hash, 0))) << hash << ": it is free at once";
  for (const uint64_t hash : next_draining(64))
    EXPECT_TRUE(known.has(shard_of(hash, 0))) << "a key that is free is not read";
  for (const int64_t position : keys.check_begin())
    EXPECT_TRUE(position > 1'000'000 || known.has(static_cast<int>(position % SHARDS)))
        << "nor is its blocker looked up";
  int steps = 0;
  for (; keys.is_forgetting(); steps++) {
    before = keys.visited();
    keys.forget_some();
    ASSERT_LE(keys.visited() - before, BlockedKeys::VISITED_MAX);
    ASSERT_LT(steps, 1000);
  }
  EXPECT_GT(steps, 100);
  for (uint64_t hash = 1; hash <= n; hash++)
    ASSERT_EQ(keys.find(SINK, hash) != nullptr, known.has(shard_of(hash, 0))) << hash;
  EXPECT_NE(keys.find(OTHER_SINK, 1), nullptr);
}

/* The shard is taken over again while entries of its former keys are left. */
TEST_F(DispatchBlockedKeys, NothingIsLeftOfAKeyWhoseShardComesBack) {
  keys.visit_at_most(2);
  for (uint64_t hash = 1; hash <= 6; hash++)
    block(SINK, hash, static_cast<int64_t>(hash * 10));
  drain(SINK, 7, 70);
  keys.forget_unknown(SINK, {});
  ASSERT_TRUE(keys.is_forgetting());
  keys.release(SINK, 2, 20);
  keys.release(30);
  keys.row_seen(SINK, 1, 40);
  keys.drained_to(SINK, 2, 25);
  keys.drain_again_from(SINK, 7, 25);
  keys.forget(SINK, 3);
  keys.drain_all_again();
  for (uint64_t hash = 1; hash <= 7; hash++)
    EXPECT_EQ(state(hash), KeyState::FREE) << hash;
  EXPECT_EQ(block(SINK, 2, 50), 0) << "the blocker of another key in the former term";
  EXPECT_EQ(block(SINK, 5, 80), 0);
  EXPECT_EQ(keys.find(SINK, 5)->group, 80);
  EXPECT_EQ(mark(6, 90, 95), 90);
  drain(SINK, 7, 100);
  while (keys.is_forgetting())
    keys.forget_some();
  EXPECT_EQ(keys.find(SINK, 2)->blocker, 50);
  EXPECT_EQ(keys.find(SINK, 5)->blocker, 80);
  EXPECT_EQ(state(6), KeyState::DRAINING);
  EXPECT_EQ(keys.find(SINK, 7)->group, 100);
  for (const uint64_t hash : {1, 3, 4})
    EXPECT_EQ(state(hash), KeyState::FREE);
  keys.release(50);
  EXPECT_EQ(state(2), KeyState::DRAINING);
  keys.forget_sink(SINK);
  while (keys.is_forgetting())
    keys.forget_some();
  EXPECT_FALSE(keys.any());
}

TEST_F(DispatchBlockedKeys, BlockersThatAreNotSeenAreTold) {
  block(SINK, KEY, 10);
  block(SINK, OTHER_KEY, 20);
  drain(SINK, 3, 7);
  EXPECT_TRUE(keys.checked_at_once());
  auto asked = keys.check_begin();
  EXPECT_EQ(std::vector<int64_t>(asked.begin(), asked.end()), (std::vector<int64_t>{10, 20}));
  keys.check_seen(SINK, KEY, 10);
  keys.check_seen(SINK, OTHER_KEY, 10); /* another of its rows */
  auto unseen = keys.check_unseen();
  EXPECT_EQ(std::vector<int64_t>(unseen.begin(), unseen.end()), std::vector<int64_t>{20});
}

TEST_F(DispatchBlockedKeys, AKeyThatIsBlockedDuringTheCheckWasNotAskedFor) {
  block(SINK, KEY, 10);
  keys.check_begin();
  keys.release(10);
  block(SINK, KEY, 30);
  block(SINK, OTHER_KEY, 40);
  EXPECT_TRUE(keys.check_unseen().empty());
}

TEST_F(DispatchBlockedKeys, ManyBlockersAreCheckedInTurns) {
  const size_t n = 10'000;
  for (uint64_t i = 1; i <= n; i++)
    block(i % 100 == 0 ? OTHER_SINK : SINK, i * 0x9E3779B97F4A7C15U, static_cast<int64_t>(i));
  EXPECT_FALSE(keys.checked_at_once());
  std::vector<int64_t> all;
  for (int check = 0; check < 5; check++) {
    auto asked = keys.check_begin();
    EXPECT_EQ(asked.size(), 2000U);
    all.insert(all.end(), asked.begin(), asked.end());
  }
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), n);
  for (size_t i = 0; i < n; i++)
    ASSERT_EQ(all[i], static_cast<int64_t>(i + 1));
}

TEST_F(DispatchBlockedKeys, ASinkWithFewKeysHasATurnInEachCheck) {
  for (uint64_t hash = 1; hash <= 50'000; hash++)
    block(SINK, hash, static_cast<int64_t>(hash));
  block(OTHER_SINK, 1, 50'001);
  block(OTHER_SINK, 2, 50'002);
  EXPECT_EQ(std::ranges::count(keys.check_begin(), 50'001), 1);
  EXPECT_EQ(std::ranges::count(keys.check_begin(), 50'002), 1);
  EXPECT_EQ(std::ranges::count(keys.check_begin(), 50'001), 1);
}

TEST_F(DispatchBlockedKeys, ACheckVisitsNoMoreKeysWhenMillionsAreBlocked) {
  for (uint64_t hash = 1; hash <= 300'000; hash++)
    block(SINK, hash, static_cast<int64_t>(hash));
  const uint64_t before = keys.visited();
  for (const int64_t position : keys.check_begin())
    if (position != 1999)
      keys.check_seen(SINK, static_cast<uint64_t>(position), position);
  EXPECT_EQ(keys.check_unseen().size(), 1U);
  EXPECT_EQ(keys.lowest(SINK), 1);
  EXPECT_LE(keys.visited() - before, 4000U);
}

TEST_F(DispatchBlockedKeys, TheLowestOfManyKeysRisesWhenAllHaveHadATurn) {
  const size_t n = 9'000;
  for (uint64_t hash = 1; hash <= n; hash++)
    block(SINK, hash, static_cast<int64_t>(100 + hash));
  EXPECT_EQ(keys.lowest(SINK), 101);
  for (uint64_t hash = 1; hash <= 3'000; hash++) {
    keys.release(static_cast<int64_t>(100 + hash));
    keys.forget(SINK, hash);
  }
  EXPECT_LE(keys.lowest(SINK), 3101);
  for (int check = 0; check < 4; check++)
    keys.check_begin();
  EXPECT_EQ(keys.lowest(SINK), 3101);
  mark(n, 7, 50);
  EXPECT_EQ(keys.lowest(SINK), 50) << "it falls at once";
  for (int check = 0; check < 9; check++)
    keys.check_begin();
  EXPECT_EQ(keys.lowest(SINK), 50) << "that row is still marked";
  keys.release(3500);
  EXPECT_EQ(keys.lowest(SINK), 1) << "the next marked row of a draining key is not known";
  keys.drained_to(SINK, 3400, 4000);
  std::vector<uint64_t> draining = next_draining(5);
  EXPECT_EQ(draining, std::vector<uint64_t>{3400});
  EXPECT_EQ(keys.lowest(SINK), 50);
}

/* What lowest() says of many keys is compared with all of them, after each of many random changes. */
TEST_F(DispatchBlockedKeys, TheLowestOfManyKeysIsNeverAboveOneOfThem) {
  uint64_t random = 1;
  const auto next = [&random](uint64_t below) {
    random = random * 6364136223846793005U + 1442695040888963407U;
    return (random >> 33) % below;
  };
  for (uint64_t hash = 1; hash <= 2'100; hash++)
    block(SINK, hash, static_cast<int64_t>(1'000'000 + hash));
  for (int change = 0; change < 3'000; change++) {
    const uint64_t hash = 1 + next(2'500);
    const int64_t position = static_cast<int64_t>(1 + next(1'000'000));
    const BlockedKey *key = keys.find(SINK, hash);
    switch (next(9)) {
    case 0:
      block(SINK, hash, position);
      break;
    case 1:
      drain(SINK, hash, position);
      break;
    case 2:
      mark(hash, 7, position);
      break;
    case 3:
      if (key && key->state == KeyState::BLOCKED)
        keys.release(key->blocker);
      break;
    case 4:
      keys.drained_to(SINK, hash, position);
      break;
    case 5:
      keys.drain_again_from(SINK, hash, position);
      break;
    case 6:
      if (next(4) == 0)
        keys.forget(SINK, hash);
      break;
    case 7:
      keys.check_begin();
      break;
    case 8:
      next_draining(64);
      break;
    }
    int64_t lowest = INT64_MAX;
    for (uint64_t each = 1; each <= 2'500; each++)
      if (const BlockedKey *found = keys.find(SINK, each))
        lowest =
            std::min({lowest, found->state == KeyState::BLOCKED ? found->blocker : INT64_MAX, found->drained + 1});
    ASSERT_LE(keys.lowest(SINK), lowest) << "after change " << change;
  }
}

TEST_F(DispatchBlockedKeys, NothingToBeClaimedLiesBelowTheLowest) {
  EXPECT_EQ(keys.lowest(SINK), INT64_MAX);
  block(SINK, KEY, 30);
  EXPECT_EQ(keys.lowest(SINK), 30);
  drain(SINK, OTHER_KEY, 7);
  keys.drained_to(SINK, OTHER_KEY, 20);
  EXPECT_EQ(keys.lowest(SINK), 21);
  keys.release(30);
  EXPECT_EQ(keys.lowest(SINK), 1);
  EXPECT_EQ(keys.lowest(OTHER_SINK), INT64_MAX);
}

TEST_F(DispatchBlockedKeys, ARedrivenRowThatIsMarkedBeforeTheBlockerIsTheLowest) {
  block(SINK, KEY, 16);
  mark(KEY, 16, 3);
  EXPECT_EQ(keys.lowest(SINK), 3);
}

TEST_F(DispatchBlockedKeys, OneOfManyBlockedKeysIsFound) {
  for (uint64_t hash = 1; hash <= 100'000; hash++)
    block(SINK, hash, static_cast<int64_t>(hash));
  for (uint64_t hash = 1; hash <= 100'000; hash++)
    ASSERT_EQ(keys.find(SINK, hash)->blocker, static_cast<int64_t>(hash));
  EXPECT_FALSE(keys.any_draining(SINK));
  keys.release(500);
  EXPECT_EQ(next_draining(9), std::vector<uint64_t>{500});
}
