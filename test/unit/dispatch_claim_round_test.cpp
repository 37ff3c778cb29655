/* A round of claiming, over a port that has a dead letter and nothing else. */
#include <memory>

#include <gtest/gtest.h>

#include "idle_claim_port.h"

using namespace dispatch;

namespace {

class OneDeadLetter : public IdleClaimPort {
public:
  ReadRow dead = {};

  void read(const Read &read, RowVisitor visit) override {
    if (read.rows == RowsOf::DEAD || read.rows == RowsOf::DEAD_OF_KEY || read.rows == RowsOf::DEAD_POSITIONS)
      (void)visit(dead);
  }
};

class DispatchClaimRound : public testing::Test {
protected:
  static constexpr SinkId SINK = 5;
  static constexpr uint64_t KEY = 77;
  static constexpr int64_t DEAD = 25;

  void SetUp() override {
    sink.events.id = SINK;
    sink.rules = {.max_attempts = 1, .ordered = true, .dead_letters_block = true};
    decisions->sinks.add(&sink);
    ShardSet all = {};
    for (int shard = 0; shard < SHARDS; shard++)
      all.add(shard);
    sink.shards.begin(all, {});
    port.dead.facts.position = DEAD;
    port.dead.facts.key_hash = KEY;
    port.dead.sink = &sink;
    port.dead.routed = port.dead.our_origin = true;
    round(false); /* a start: the dead letter is read, and blocks its key */
  }

  void round(bool rescan) {
    sink.cursor->set_free_places(10, 1000);
    claims.run({{++now * 1'000'000'000}, now}, &rescan);
    decisions->commit_round();
  }

  const BlockedKey *key() { return decisions->blocked_keys.find(SINK, KEY); }

  std::unique_ptr<Dispatch> decisions{dispatch::create()};
  RoundSink sink = {};
  OneDeadLetter port;
  ClaimRound claims{*decisions, port, {.bytes = 100'000, .poll_ms = 1000}};
  int64_t now = 0;
};

TEST_F(DispatchClaimRound, ADeadLetterBlocksItsKey) {
  for (int i = 0; i < 3; i++) {
    ASSERT_NE(key(), nullptr);
    EXPECT_EQ(key()->state, KeyState::BLOCKED);
    EXPECT_EQ(key()->blocker, DEAD);
    round(true);
  }
}

/* Its event was rejected while earlier rows had yet to drain, and blocked its key at once. */
TEST_F(DispatchClaimRound, AKeyThatItsDeadLetterBlocksDrainsWhatComesBeforeIt) {
  ASSERT_EQ(decisions->blocked_keys.marked(SINK, KEY, 9, 10), DEAD) << "a row is marked before it";
  EXPECT_EQ(key()->state, KeyState::BLOCKED);
  round(true);
  EXPECT_EQ(key()->state, KeyState::DRAINING);
  round(false);
  EXPECT_EQ(key()->state, KeyState::BLOCKED);
  EXPECT_EQ(key()->blocker, DEAD);
  EXPECT_EQ(key()->drained, DEAD);
  round(true);
  EXPECT_EQ(key()->state, KeyState::BLOCKED);
}

}  // namespace
