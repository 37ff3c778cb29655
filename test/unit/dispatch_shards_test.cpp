/* Handoff of shards: one worker alone, and several in a simulation with a seed. */
#include "dispatch/shards.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

using namespace dispatch;

namespace {

ShardSet set_of(std::initializer_list<int> shards) {
  ShardSet set = {};
  for (int shard : shards)
    set.add(shard);
  return set;
}

bool same(const ShardSet &a, const ShardSet &b) {
  return (a - b).empty() && (b - a).empty();
}

/* The shards of worker `index` when `workers` share them. */
ShardSet share(int index, int workers) {
  ShardSet set = {};
  for (int shard = index; shard < SHARDS; shard += workers)
    set.add(shard);
  return set;
}

TEST(DispatchShards, AKeysEventsAreOfOneShardWhateverTheirPositions) {
  EXPECT_EQ(shard_of(1000, 5), shard_of(1000, 6));
  EXPECT_EQ(shard_of(1000, 5), 1000 % 256);
  EXPECT_NE(shard_of(0, 5), shard_of(0, 6)) << "without a key, by position";
}

TEST(DispatchShards, ASetHasWhatWasAddedInEachOfItsWords) {
  ShardSet set = set_of({0, 63, 64, 255});
  EXPECT_TRUE(set.has(0) && set.has(63) && set.has(64) && set.has(255));
  EXPECT_FALSE(set.has(1) || set.has(62) || set.has(65) || set.has(254));
  set.remove(64);
  EXPECT_TRUE(same(set, set_of({0, 63, 255})));
  EXPECT_FALSE(set.empty());
  EXPECT_TRUE((set - set_of({0, 63, 255})).empty());
  EXPECT_TRUE(same(set_of({1}) | set_of({200}), set_of({1, 200})));
}

TEST(DispatchShards, NothingIsTakenBeforeTheLauncherHasSaidTheNumber) {
  Shards shards;
  shards.init(0);
  const PresentWorker present[] = {{0, {}}};
  EXPECT_TRUE(shards.exchange(0, present, 1, {}).empty());
  EXPECT_TRUE(shards.mine().empty());
  EXPECT_FALSE(shards.superfluous());
}

TEST(DispatchShards, AShardIsGivenAwayOnlyWhenItsNewOwnerIsThere) {
  Shards shards;
  shards.init(0);
  PresentWorker present[] = {{0, {}}, {1, {}}};
  shards.exchange(1, present, 1, {});
  EXPECT_TRUE(same(shards.mine(), share(0, 1)));
  present[0].shards = shards.mine();
  EXPECT_TRUE(shards.exchange(2, present, 1, {}).empty()) << "worker 1 is not there";
  EXPECT_TRUE(same(shards.mine(), share(0, 1)));
  EXPECT_TRUE(same(shards.exchange(2, present, 2, {}), share(1, 2)));
  EXPECT_TRUE(same(shards.mine(), share(0, 2)));
}

TEST(DispatchShards, AShardThatAnotherWorkerStillHasIsNotTaken) {
  Shards shards;
  shards.init(1);
  PresentWorker present[] = {{0, share(0, 1)}, {1, {}}};
  shards.exchange(2, present, 2, {});
  EXPECT_TRUE(shards.mine().empty());
  present[0].shards = present[0].shards - set_of({3});
  shards.exchange(2, present, 2, {});
  EXPECT_TRUE(same(shards.mine(), set_of({3})));
}

TEST(DispatchShards, AWorkerTooManyIsSuperfluousOnceItHasGivenAllAway) {
  Shards shards;
  shards.init(1);
  PresentWorker present[] = {{0, share(0, 2)}, {1, {}}};
  shards.exchange(2, present, 2, {});
  EXPECT_FALSE(shards.superfluous());
  shards.exchange(1, present + 1, 1, {});
  EXPECT_FALSE(shards.superfluous()) << "worker 0 is not there to take them";
  shards.exchange(1, present, 2, {});
  EXPECT_TRUE(shards.superfluous());
}

TEST(DispatchShards, AWorkerThatStandsStillIsGivenNothing) {
  Shards shards;
  shards.init(1);
  PresentWorker present[] = {{0, share(0, 2), true}, {1, {}}};
  shards.exchange(2, present, 2, {});
  present[1].shards = shards.mine();
  EXPECT_TRUE(shards.exchange(1, present, 2, {5'000'000}).empty());
  EXPECT_TRUE(same(shards.mine(), share(1, 2))) << "what worker 0 has is not taken";
  EXPECT_FALSE(shards.superfluous());
  EXPECT_TRUE(shards.keeps_for_another());
  EXPECT_EQ(shards.exchange_at(), moment_after({5'000'000}, 1000));
  present[0].stands_still = false;
  EXPECT_TRUE(same(shards.exchange(1, present, 2, {6'000'000}), share(1, 2)));
  EXPECT_TRUE(shards.superfluous());
  EXPECT_FALSE(shards.keeps_for_another());
}

TEST(DispatchShards, WhatBecomesFreeWithin100MillisecondsIsTakenTogether) {
  Shards shards;
  EXPECT_EQ(shards.exchange_at(), MOMENT_NONE);
  shards.gained({5'000'000});
  EXPECT_EQ(shards.exchange_at(), moment_after({5'000'000}, 100));
}

struct Sink {
  SinkShards shards = {};
  uint32_t in_flight[SHARDS] = {};

  ShardSet claimable() const {
    ShardSet set = {};
    for (int shard = 0; shard < SHARDS; shard++)
      if (shards.may_claim(shard))
        set.add(shard);
    return set;
  }
};

TEST(DispatchShards, OnlyTheShardsWithEventsInFlightDrain) {
  Sink sink;
  sink.shards.update(set_of({1, 2}), {});
  sink.in_flight[1] = 1;
  sink.in_flight[3] = 1; /* of a shard that is not handed off */
  sink.shards.give_away(set_of({1, 2}), sink.in_flight);
  EXPECT_TRUE(same(sink.shards.draining(), set_of({1})));
  EXPECT_TRUE(sink.claimable().empty());
  EXPECT_FALSE(sink.shards.note_drained(sink.in_flight));
  EXPECT_TRUE(sink.shards.any_draining());
  sink.in_flight[1] = 0;
  EXPECT_TRUE(sink.shards.note_drained(sink.in_flight));
  EXPECT_FALSE(sink.shards.any_draining());
  EXPECT_TRUE(sink.shards.draining().empty());
  EXPECT_FALSE(sink.shards.note_drained(sink.in_flight)) << "told once";
}

TEST(DispatchShards, ASinkClaimsNothingOfAShardThatStillDrains) {
  Sink sink;
  EXPECT_TRUE(sink.shards.update(set_of({1, 2}), set_of({2})));
  EXPECT_TRUE(same(sink.claimable(), set_of({1})));
  EXPECT_FALSE(sink.shards.update(set_of({1, 2}), set_of({2})));
  EXPECT_TRUE(sink.shards.update(set_of({1, 2}), {})) << "drained";
  EXPECT_TRUE(same(sink.claimable(), set_of({1, 2})));
}

TEST(DispatchShards, AShardThatComesBackWhileItDrainsIsClaimedFromOnceItHasDrained) {
  Sink sink;
  sink.shards.update(set_of({1}), {});
  sink.in_flight[1] = 1;
  sink.shards.give_away(set_of({1}), sink.in_flight);
  EXPECT_FALSE(sink.shards.update(set_of({1}), set_of({1})));
  sink.in_flight[1] = 0;
  sink.shards.note_drained(sink.in_flight);
  EXPECT_TRUE(sink.shards.update(set_of({1}), {}));
  EXPECT_TRUE(sink.shards.is_fresh(1)) << "another worker may have blocked keys in between";
}

TEST(DispatchShards, AnotherSinkOfTheSameNameKnowsNoBlockedKeys) {
  Sink sink;
  sink.shards.begin(set_of({1, 2}), set_of({2}));
  sink.shards.fresh_read();
  EXPECT_FALSE(sink.shards.any_fresh());
  sink.shards.begin(set_of({1, 2}), set_of({2}));
  EXPECT_TRUE(same(sink.claimable(), set_of({1})));
  EXPECT_TRUE(sink.shards.is_fresh(1));
}

TEST(DispatchShards, BlockedKeysOfAFreshShardAreUnknownUntilItsRowsAreRead) {
  Sink sink;
  sink.shards.update(set_of({1, 2}), {});
  EXPECT_TRUE(sink.shards.is_fresh(1) && sink.shards.is_fresh(2));
  EXPECT_TRUE(sink.shards.known().empty());
  sink.shards.fresh_read();
  EXPECT_TRUE(same(sink.shards.known(), set_of({1, 2})));
  sink.shards.update(set_of({1, 4}), {});
  EXPECT_TRUE(sink.shards.is_fresh(4));
  EXPECT_TRUE(same(sink.shards.known(), set_of({1}))) << "2 was given away, 4 was taken";
  sink.shards.update(set_of({1}), {});
  EXPECT_FALSE(sink.shards.any_fresh()) << "lost before it was read";
  sink.in_flight[1] = 1;
  sink.shards.give_away(set_of({1}), sink.in_flight);
  sink.shards.update({}, set_of({1}));
  EXPECT_TRUE(same(sink.shards.known(), set_of({1}))) << "while its events are in flight";
}

/* Workers that start, exit and deliver, each at its own speed, with one sink. Slots stand for shared memory. */
struct Database {
  struct Worker {
    bool here = false;
    Shards shards;
    Sink sink;
    ShardSet published = {}, published_draining = {};
  };
  std::vector<Worker> all = std::vector<Worker>(5);
  int workers = 1;

  void start(int index) {
    all[index] = Worker();
    all[index].here = true;
    all[index].shards.init(index);
  }

  std::vector<PresentWorker> present() const {
    std::vector<PresentWorker> slots;
    for (int i = 0; i < static_cast<int>(all.size()); i++)
      if (all[i].here)
        slots.push_back({i, all[i].published});
    return slots;
  }

  void follow(int index) {
    Worker &worker = all[index];
    const std::vector<PresentWorker> slots = present();
    ShardSet draining = {};
    worker.sink.shards.note_drained(worker.sink.in_flight);
    worker.sink.shards.give_away(worker.shards.exchange(workers, slots.data(), static_cast<int>(slots.size()), {}),
                                 worker.sink.in_flight);
    worker.published = worker.shards.mine();
    worker.published_draining = worker.sink.shards.draining();
    for (const Worker &other : all)
      if (other.here)
        draining = draining | other.published_draining;
    worker.sink.shards.update(worker.shards.mine(), draining);
  }

  /* How many workers own the shard or may claim its events. */
  int users(int shard) const {
    int n = 0;
    for (const Worker &worker : all)
      n += worker.here && (worker.sink.shards.may_claim(shard) || worker.sink.in_flight[shard] > 0);
    return n;
  }
};

TEST(DispatchShards, NoTwoWorkersEverHaveEventsOfOneShardAndAllShardsFindTheirOwner) {
  for (unsigned seed = 1; seed <= 10; seed++) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Database database;
    for (int step = 0; step < 1000; step++) {
      const int index = static_cast<int>(random() % database.all.size());
      Database::Worker &worker = database.all[index];
      const int shard = static_cast<int>(random() % SHARDS);
      if (random() % 100 == 0)
        database.workers = 1 + static_cast<int>(random() % database.all.size());
      if (!worker.here && index < database.workers)
        database.start(index);
      if (!worker.here)
        continue;
      if (worker.sink.shards.may_claim(shard))
        worker.sink.in_flight[shard]++;
      for (int other = 0; other < SHARDS; other++)
        if (worker.sink.in_flight[other] > 0 && random() % 8 == 0)
          worker.sink.in_flight[other]--;
      database.follow(index);
      for (int other = 0; other < SHARDS; other++)
        ASSERT_LE(database.users(other), 1) << "shard " << other << " in step " << step;
    }
    for (int round = 0; round < 3; round++)
      for (int i = 0; i < static_cast<int>(database.all.size()); i++) {
        if (!database.all[i].here && i < database.workers)
          database.start(i);
        if (!database.all[i].here)
          continue;
        for (uint32_t &in_flight : database.all[i].sink.in_flight)
          in_flight = 0;
        database.follow(i);
      }
    for (int i = 0; i < static_cast<int>(database.all.size()); i++) {
      const Database::Worker &worker = database.all[i];
      if (worker.here && i < database.workers) {
        EXPECT_TRUE(same(worker.sink.claimable(), share(i, database.workers)));
      }
      EXPECT_EQ(worker.here && worker.shards.superfluous(), worker.here && i >= database.workers);
    }
  }
}

}  // namespace
