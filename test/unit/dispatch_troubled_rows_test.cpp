/* Failing and redriven rows that a worker learns of in slices, beside deliveries: rounds of claiming over a port
 * whose table is a list of rows. */
#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "idle_claim_port.h"

using namespace dispatch;

namespace {

constexpr WallTime PAST = 1000, FUTURE = 1'000'000'000'000;

class ListOfRows : public IdleClaimPort {
public:
  explicit ListOfRows(Dispatch &decisions) : d_(decisions) {}

  std::vector<ReadRow> pending, dead; /* by position */
  std::vector<InFlightEvent *> batch; /* of the last round, without what it has dropped */

  void read(const Read &read, RowVisitor visit) override {
    int n = 0;
    for (const ReadRow &row : rows(read))
      if (is_read(row, read) && (!visit(row) || ++n == read.limit))
        return;
  }
  InFlightEvent *claim(const ReadRow &row, const char **) override {
    InFlightEvent *event = d_.in_flight.claim({
        .position = row.facts.position,
        .key_hash = row.sink->rules.ordered ? row.facts.key_hash : 0,
        .sink = &row.sink->events,
        .row = row.facts.handle,
        .attempts = 0,
        .failed = row.facts.failed,
        .bytes = 10,
        .shard = static_cast<uint8_t>(shard_of(row.facts.key_hash, row.facts.position)),
        .blocked_by = row.facts.blocked_by,
        .due_since = 0,
        .late = false,
    });
    row.sink->event_claimed(event->bytes);
    batch.push_back(event);
    show_batch(*row.sink);
    return event;
  }
  void close_ranks(RoundSink &sink) override {
    std::erase(batch, nullptr);
    show_batch(sink);
  }
  void lock(std::span<const Mark> marks, FunctionRef<void, InFlightEvent **, RowLocked>,
            FunctionRef<void, const Mark &, RowLocked, const RowHandle &> visit) override {
    for (const Mark &mark : marks)
      visit(mark, RowLocked::LOCKED, mark.row);
  }
  void write_marks(std::span<const MarkToWrite> marks) override {
    for (const MarkToWrite &mark : marks)
      for (ReadRow &row : pending)
        if (row.facts.handle.page == mark.handle.page)
          row.facts.blocked_by = mark.group;
  }

private:
  void show_batch(RoundSink &sink) {
    sink.batch_events = batch.data();
    sink.n_batch = static_cast<int>(batch.size());
  }

  std::vector<ReadRow> rows(const Read &read) const {
    const bool of_dead =
        read.rows == RowsOf::DEAD || read.rows == RowsOf::DEAD_OF_KEY || read.rows == RowsOf::DEAD_POSITIONS;
    std::vector<ReadRow> rows = of_dead ? dead : pending;
    if (read.rows == RowsOf::LAST)
      std::ranges::reverse(rows);
    if (read.rows == RowsOf::DUE)
      std::ranges::stable_sort(rows, {}, [](const ReadRow &row) { return row.facts.available_at; });
    if (read.rows == RowsOf::TROUBLED)
      std::ranges::stable_sort(rows, {}, [](const ReadRow &row) { return row.facts.key_hash; });
    return rows;
  }

  static bool is_read(const ReadRow &row, const Read &read) {
    const Row &facts = row.facts;
    const bool has_time = facts.available_at != WALL_TIME_BEGIN, is_of_sink = row.sink == read.sink,
               is_of_key = is_of_sink && facts.key_hash == read.key_hash,
               is_troubled = facts.failed || facts.redriven;
    switch (read.rows) {
    case RowsOf::MAIN:
    case RowsOf::DEAD:
      return facts.position > read.after;
    case RowsOf::MARKED:
      return facts.blocked_by == read.group && facts.position > read.after;
    case RowsOf::DUE:
      return is_of_sink && has_time && facts.blocked_by == 0 &&
             std::pair(facts.available_at, facts.position) > std::pair(read.after_time, read.after);
    case RowsOf::TROUBLED:
      return is_troubled && is_of_sink &&
             std::pair(static_cast<int64_t>(facts.key_hash), facts.position) > std::pair(read.after_hash, read.after);
    case RowsOf::TROUBLED_OF_KEY:
      return is_troubled && is_of_key;
    case RowsOf::GROUPS:
      return facts.blocked_by != 0;
    case RowsOf::FIRST_OF_SINK:
      return is_of_sink && !has_time;
    case RowsOf::FIRST_MARKED_WITH_TIME:
      return facts.blocked_by != 0 && has_time;
    case RowsOf::LAST:
      return true;
    case RowsOf::REDRIVEN_OF_KEY:
      return facts.redriven && facts.blocked_by == 0 && !has_time && is_of_key;
    case RowsOf::DEAD_OF_KEY:
      return is_of_key;
    case RowsOf::POSITIONS:
    case RowsOf::DEAD_POSITIONS:
      return std::ranges::find(read.positions, facts.position) != read.positions.end();
    default:
      return false;
    }
  }

  Dispatch &d_;
};

/* The worker has half of the shards: those of keys below 128. */
class DispatchTroubledRows : public testing::Test {
protected:
  static constexpr uint64_t KEY = 77, EARLIER_KEY = 1, OF_ANOTHER_WORKER = 0x80;

  void SetUp() override {
    ShardSet half = {};
    for (int shard = 0; shard < SHARDS / 2; shard++)
      half.add(shard);
    sink.events.id = 5;
    other.events.id = 6;
    for (RoundSink *each : {&sink, &other}) {
      each->rules = {.max_attempts = 10, .ordered = true, .dead_letters_block = false};
      decisions->sinks.add(each);
      each->shards.begin(half, {});
    }
  }

  ReadRow row(int64_t position, uint64_t key_hash, WallTime available_at = WALL_TIME_BEGIN) {
    ReadRow row = {};
    row.facts.position = position;
    row.facts.handle.page = static_cast<uint32_t>(position);
    row.facts.key_hash = key_hash;
    row.facts.available_at = available_at;
    row.sink = &sink;
    row.routed = row.our_origin = true;
    return row;
  }
  ReadRow failing(int64_t position, uint64_t key_hash, WallTime available_at = FUTURE) {
    ReadRow failing = row(position, key_hash, available_at);
    failing.facts.failed = true;
    return failing;
  }
  ReadRow redriven(int64_t position, uint64_t key_hash, WallTime available_at = WALL_TIME_BEGIN) {
    ReadRow redriven = row(position, key_hash, available_at);
    redriven.facts.redriven = true;
    return redriven;
  }
  ReadRow marked(int64_t position, uint64_t key_hash, int64_t group) {
    ReadRow marked = row(position, key_hash);
    marked.facts.blocked_by = group;
    return marked;
  }
  /* A row of a paused sink: a start skips what comes between it and the first row of this one. */
  ReadRow before_the_gap() {
    ReadRow first = row(1, EARLIER_KEY);
    first.sink = &other;
    return first;
  }

  /* Returns the positions that it has claimed. */
  std::vector<int64_t> round(int free_places = 100, bool fails = false) {
    std::vector<int64_t> positions;
    bool rescan = false;
    port.batch.clear();
    sink.n_batch = 0;
    sink.cursor->set_free_places(free_places, 100'000);
    other.cursor->set_free_places(0, 0);
    claims.run({{++now * 1'000'000'000}, now * 1'000'000}, &rescan);
    if (fails) {
      claims.give_back();
      return {};
    }
    decisions->commit_round();
    for (InFlightEvent *event : port.batch) {
      decisions->in_flight.submitted(event, {now});
      positions.push_back(event->position);
    }
    return positions;
  }

  std::unique_ptr<Dispatch> decisions{dispatch::create()};
  RoundSink sink = {}, other = {};
  ListOfRows port{*decisions};
  ClaimRound claims{
      *decisions, port, {.bytes = 100'000, .poll_ms = 1000, .dead_letters = 1, .troubled = 1, .skipped_min = 100}};
  int64_t now = 0;
};

using Positions = std::vector<int64_t>;

/* It has a time, so the main scan of a start skips it; and more due rows come before it than a round reads. A key
 * that drains is not blocked by it: it drains up to it. */
TEST_F(DispatchTroubledRows, AKeyThatDrainsStopsBeforeARedrivenRowThatIsNotYetKnown) {
  const int64_t redriven_at = 900, behind = 1000;
  sink.rules.dead_letters_block = true;
  port.pending.push_back(before_the_gap());
  for (int64_t position = 2; position < 2 + READ_MIN; position++)
    port.pending.push_back(failing(position, OF_ANOTHER_WORKER, PAST));
  for (int64_t position = 800; position < 810; position++)
    port.pending.push_back(failing(position, EARLIER_KEY));
  port.pending.push_back(redriven(redriven_at, KEY, PAST + 1));
  port.pending.push_back(marked(behind, KEY, 7));
  port.pending.push_back(marked(behind + 1, KEY, 7));
  Positions claimed;
  for (int i = 0; i < 8; i++)
    std::ranges::copy(round(1), std::back_inserter(claimed));
  EXPECT_EQ(claimed, (Positions{redriven_at, behind, behind + 1}));
}

/* The dead letters that were read did not have it any more, and the rows that were read did not have it yet. */
TEST_F(DispatchTroubledRows, ARowThatIsRedrivenWhileDeadLettersAreReadIsKnownWhenAllAreRead) {
  port.dead = {row(5, EARLIER_KEY), row(8, KEY)};
  port.pending = {row(20, KEY)};
  EXPECT_EQ(round(), Positions{20});
  ASSERT_FALSE(decisions->dead_letter_read.all_known());
  const InFlightEvent *later = decisions->in_flight.find(20);
  EXPECT_TRUE(decisions->may_be_out_of_order(later));
  port.dead.pop_back();
  port.pending.insert(port.pending.begin(), redriven(8, KEY));
  for (int i = 0; i < 4; i++)
    (void)round();
  ASSERT_TRUE(decisions->dead_letter_read.all_known());
  EXPECT_TRUE(decisions->may_be_out_of_order(later)) << "the redriven row is to be told that it was overtaken";
}

/* The keys of an unordered sink are not known, and it keeps its shards when it becomes ordered. */
TEST_F(DispatchTroubledRows, ASinkThatBecomesOrderedLearnsOfTheFailingRowsThatItsStartSkips) {
  sink.rules.ordered = false;
  port.pending = {before_the_gap(), failing(10, KEY)};
  EXPECT_EQ(round(), Positions{});
  ASSERT_FALSE(decisions->sinks.any_fresh_shard());
  sink.rules.ordered = true;
  sink.cursor->restart(now);
  port.pending.push_back(row(1000, KEY));
  for (int i = 0; i < 3; i++)
    EXPECT_EQ(round(), Positions{});
}

/* A user's trigger may change any row in the transaction of the round. */
TEST_F(DispatchTroubledRows, ARowThatAFailedTransactionHasTakenAwayIsReadAgain) {
  port.pending = {before_the_gap(), failing(10, EARLIER_KEY), failing(20, KEY), row(1000, EARLIER_KEY + 1)};
  EXPECT_EQ(round(), Positions{1000});
  EXPECT_EQ(round(), Positions{}) << "and the first failing row is read";
  const ReadRow taken = port.pending[2];
  port.pending.erase(port.pending.begin() + 2);
  (void)round(100, true);
  port.pending.insert(port.pending.begin() + 2, taken);
  port.pending.push_back(row(2000, KEY));
  for (int i = 0; i < 3; i++)
    EXPECT_EQ(round(), Positions{});
}

}  // namespace
