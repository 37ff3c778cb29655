/* A round of claiming, over a port that has a dead letter and nothing else. */
#include "dispatch/round/claim_round.h"

#include <memory>

#include <gtest/gtest.h>

using namespace dispatch;

namespace {

class OneDeadLetter : public ClaimPort {
public:
  ReadRow dead = {};

  void at(const char *) override {}
  int free_events() override { return 100; }
  int64_t free_bytes() override { return 100'000; }
  void take_snapshot() override {}
  void check_sinks() override {}
  TransactionSnapshot transactions() override { return {nullptr, 0, 10, 10}; }
  uint64_t oldest_running() override { return 10; }
  void read(const Read &read, RowVisitor visit) override {
    if (read.rows == RowsOf::DEAD || read.rows == RowsOf::DEAD_OF_KEY || read.rows == RowsOf::DEAD_POSITIONS)
      (void)visit(dead);
  }
  void find_late(std::span<const uint64_t>, int64_t, FunctionRef<void, uint64_t, int64_t>) override {}
  int read_queue(RescanPlace, std::span<QueueEntry>) override { return 0; }
  void delete_from_queue(std::span<const RowHandle>) override {}
  bool any_news(RescanPlace, int64_t, std::span<const uint64_t>) override { return false; }
  bool is_to_be_routed(const ReadRow &) override { return false; }
  bool routing_is_stuck(int64_t) override { return false; }
  InFlightEvent *claim(const ReadRow &, const char **) override { return nullptr; }
  void close_ranks(RoundSink &) override {}
  void lock(std::span<const Mark>, FunctionRef<void, InFlightEvent **, RowLocked>,
            FunctionRef<void, const Mark &, RowLocked, const RowHandle &>) override {}
  void write_marks(std::span<const MarkToWrite>) override {}
  void row_decided(const ReadRow &, const RowDecision &) override {}
  void event_returned(const InFlightEvent &, const char *) override {}
  void returned_event_blocked(const Mark &, int64_t) override {}
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
