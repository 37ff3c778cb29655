/*
 * dispatch.cpp: rounds of src/dispatch/round over a small table: claims, a failing event whose key is blocked and
 * drains, a row that another session has locked, a dead letter, recording, and rounds that are rolled back. As in the
 * server, "out of memory" rolls the round back and the next one tries again.
 */
#include <algorithm>
#include <memory>
#include <vector>

#include "dispatch/round/claim_round.h"
#include "dispatch/round/record_round.h"
#include "scenario.h"

using namespace dispatch;

namespace calls {
namespace {

struct OutOfMemory {};

struct TableRow {
  int64_t position;
  uint64_t key;
  int64_t blocked_by = 0;
  WallTime available_at = WALL_TIME_BEGIN;
  int32_t attempts = 0;
  bool gone = false;
};

class World final : private ClaimPort, private RecordPort {
public:
  static constexpr int64_t failing = 2, rejected = 3, locked = 5;

  World() {
    sink_.events.id = 5;
    sink_.rules = {.max_attempts = 10, .ordered = true, .dead_letters_block = false};
    second_try("sinks.add()", [&] { return under_test([&] { return d_->sinks.add(&sink_); }); });
    ShardSet all = {};
    for (int shard = 0; shard < SHARDS; shard++)
      all.add(shard);
    sink_.shards.begin(all, {});
    for (int64_t position = 1; position <= 12; position++)
      table_.push_back({position, static_cast<uint64_t>(position % 3 + 1)});
    batch_.reserve(table_.size());
  }

  void run() {
    for (int round = 0; alive() > 0; round++) {
      if (round > 200)
        failed("%zu rows are never delivered", alive());
      now_.moment = moment_after(now_.moment, 150);
      now_.wall += 150'000;
      record(round == 4);
      claim(round == 1);
      answer();
    }
    if (d_->in_flight.count() != 0)
      failed("%d events are left in flight", d_->in_flight.count());
    for (uint64_t key = 1; key <= 3; key++)
      if (d_->blocked_keys.find(sink_.id(), key) &&
          d_->blocked_keys.find(sink_.id(), key)->state == KeyState::BLOCKED)
        failed("a key is left blocked");
  }

private:
  size_t alive() const {
    return static_cast<size_t>(std::count_if(table_.begin(), table_.end(), [](auto &row) { return !row.gone; }));
  }
  TableRow &row_at(int64_t position) { return table_[static_cast<size_t>(position - 1)]; }
  static RowHandle handle_of(int64_t position) { return {static_cast<uint32_t>(position), 0, 0, 0}; }

  /* ---- the port ---- */

  void at(const char *) override {}
  [[noreturn]] void out_of_memory() override {
    Armed off(false);
    throw OutOfMemory();
  }
  int free_events() override { return 100; }
  int64_t free_bytes() override { return 100'000; }
  void take_snapshot() override {}
  void check_sinks() override {}
  TransactionSnapshot transactions() override { return {nullptr, 0, 100, 100}; }
  uint64_t oldest_running() override { return 100; }
  void find_late(std::span<const uint64_t>, int64_t, FunctionRef<void, uint64_t, int64_t>) override {}
  int read_queue(RescanPlace, std::span<QueueEntry>) override { return 0; }
  void delete_from_queue(std::span<const RowHandle>) override {}
  bool any_news(RescanPlace, int64_t, std::span<const uint64_t>) override { return true; }
  bool is_to_be_routed(const ReadRow &) override { return false; }
  bool routing_is_stuck(int64_t) override { return false; }
  void row_decided(const ReadRow &, const RowDecision &) override {}
  void event_returned(const InFlightEvent &, const char *) override {}
  void returned_event_blocked(const Mark &, int64_t) override {}
  Retention retention_of(const InFlightEvent &) override { return Retention::NONE; }
  int64_t retry_delay_ms(const InFlightEvent &) override { return 10; }
  void find_earlier(std::span<const SentKey>, FunctionRef<void, uint32_t, const EarlierRow &>) override {}
  void lock_earlier(std::span<OvertakenRow>, std::span<OvertakenRow>) override {}
  void write_overtaken(EarlierFate, std::span<const OvertakenRow>) override {}
  void flush_recordings() override {}

  static bool is_read(const TableRow &row, const Read &read) {
    switch (read.rows) {
    case RowsOf::MAIN:
      return row.position > read.after;
    case RowsOf::MARKED:
      return row.blocked_by == read.group && row.position > read.after;
    case RowsOf::DUE:
      return row.available_at != WALL_TIME_BEGIN && row.blocked_by == 0;
    case RowsOf::FAILING:
      return row.attempts > 0 && row.blocked_by == 0;
    case RowsOf::POSITIONS:
      return std::find(read.positions.begin(), read.positions.end(), row.position) != read.positions.end();
    default:
      return false;
    }
  }

  void read(const Read &read, RowVisitor visit) override {
    for (const TableRow &row : table_)
      if (!row.gone && is_read(row, read) &&
          !visit({.facts = {row.position, row.key, row.available_at, row.blocked_by, row.attempts > 0, false,
                            handle_of(row.position)},
                  .sink = &sink_,
                  .routed = true,
                  .our_origin = true,
                  .tried_at = WALL_TIME_NEVER,
                  .error = {},
                  .of_port = &row}))
        return;
  }

  InFlightEvent *claim(const ReadRow &read, const char **) override {
    const TableRow &row = *static_cast<const TableRow *>(read.of_port);
    InFlightEvent *event = d_->in_flight.claim({.position = row.position,
                                                .key_hash = row.key,
                                                .sink = &sink_.events,
                                                .row = read.facts.handle,
                                                .attempts = row.attempts,
                                                .failed = row.attempts > 0,
                                                .bytes = 100,
                                                .shard = 0,
                                                .blocked_by = row.blocked_by,
                                                .due_since = 0,
                                                .late = false});
    sink_.event_claimed(100);
    batch_.push_back(event);
    close_ranks(sink_);
    return event;
  }

  void close_ranks(RoundSink &) override {
    std::erase(batch_, nullptr);
    sink_.batch_events = batch_.data();
    sink_.n_batch = static_cast<int>(batch_.size());
  }

  /* One row of the first batch is locked by another session: later events of its key wait behind it. */
  void lock(std::span<const Mark> marks, FunctionRef<void, InFlightEvent **, RowLocked> visit_event,
            FunctionRef<void, const Mark &, RowLocked, const RowHandle &> visit_mark) override {
    for (const Mark &mark : marks)
      visit_mark(mark, RowLocked::LOCKED, handle_of(mark.position));
    for (InFlightEvent *&event : batch_)
      if (event->position == locked && !was_locked_) {
        visit_event(&event, RowLocked::BUSY);
        was_locked_ = true;
      }
  }

  void write_marks(std::span<const MarkToWrite> marks) override {
    for (const MarkToWrite &mark : marks)
      row_at(mark.handle.page).blocked_by = mark.group;
  }

  size_t delete_unmodified(std::span<InFlightEvent *> events) override {
    for (const InFlightEvent *event : events)
      row_at(event->position).gone = true;
    return events.size();
  }

  void lock_ended(std::span<InFlightEvent *const> events,
                  FunctionRef<void, InFlightEvent *, FoundRow, const RowHandle &> visit) override {
    for (InFlightEvent *event : events)
      visit(event, still_its_row(event, &sink_, event->key_hash) ? FoundRow::OURS : FoundRow::GONE,
            handle_of(event->position));
  }

  void write(Disposition disposition, std::span<const RowToWrite> rows) override {
    for (const RowToWrite &each : rows) {
      TableRow &row = row_at(each.event->position);
      row.gone = disposition != Disposition::RETRY;
      row.attempts++;
      row.available_at = each.next_attempt;
      row.blocked_by = each.group;
    }
  }

  /* ---- rounds ---- */

  void claim(bool fails) {
    const std::vector<TableRow> before = table_;
    bool rescan = true;
    batch_.clear();
    close_ranks(sink_);
    sink_.cursor->set_free_places(4, 100'000);
    try {
      under_test([&] { return claims_.run(now_, &rescan); });
      if (fails)
        throw OutOfMemory();
    } catch (const OutOfMemory &) {
      table_ = before;
      give_back();
      return;
    }
    d_->commit_round();
    for (InFlightEvent *event : batch_)
      d_->in_flight.submitted(event, MOMENT_NONE);
    submitted_.insert(submitted_.end(), batch_.begin(), batch_.end());
  }

  /* Without memory for a mark the worker ends; the next one reads the rows anew. Here: it is tried again. */
  void give_back() {
    for (int i = 0; i < 2; i++)
      try {
        under_test([&] {
          claims_.give_back();
          return true;
        });
        return;
      } catch (const OutOfMemory &) {
      }
    failed("give_back() failed twice");
  }

  void return_event(InFlightEvent *event) {
    for (int i = 0; i < 2; i++)
      try {
        under_test([&] {
          claims_.return_event(event);
          return true;
        });
        return;
      } catch (const OutOfMemory &) {
      }
    failed("return_event() failed twice");
  }

  void answer() {
    for (InFlightEvent *event : std::exchange(submitted_, {})) {
      Outcome outcome = event->position == failing && event->attempts < 2 ? Outcome::RETRY
                        : event->position == rejected                     ? Outcome::REJECTED
                                                                          : Outcome::SENT;
      /* Events behind the failing one were not sent. */
      if (const BlockedKey *key = d_->blocked_keys.find_before(sink_.id(), event->key_hash, event->position);
          key && key->blocker == failing)
        outcome = Outcome::RETURNED;
      if (outcome == Outcome::SENT || outcome == Outcome::REJECTED)
        for (const TableRow &row : table_)
          if (!row.gone && row.key == event->key_hash && row.position < event->position &&
              !(d_->in_flight.find(row.position) && has_ended(d_->in_flight.find(row.position))))
            failed("event %ld was sent before event %ld", static_cast<long>(event->position),
                   static_cast<long>(row.position));
      if (d_->is_returned(event, outcome, true)) {
        return_event(event);
        continue;
      }
      second_try("make_room_to_block()", [&] { return under_test([&] { return d_->make_room_to_block(); }); });
      sink_.event_ended(event->bytes);
      const Completion completion = {outcome, -1, outcome == Outcome::SENT ? nullptr : "refused", 0, false, false};
      under_test([&] {
        d_->event_ended(event, completion, sink_.rules, now_);
        return true;
      });
    }
  }

  void record(bool fails) {
    if (d_->in_flight.ended() == 0)
      return;
    const std::vector<TableRow> before = table_;
    try {
      under_test([&] {
        records_.run(now_);
        return true;
      });
      if (fails)
        throw OutOfMemory();
    } catch (const OutOfMemory &) {
      table_ = before;
      under_test([&] { return records_.rolled_back(false, false).try_others; });
      return;
    }
    under_test([&] { return records_.committed(1); });
    d_->in_flight.unflushed.safe(1);
  }

  std::unique_ptr<Dispatch> d_{second_try("create()", [] { return under_test([] { return create(); }); })};
  RoundSink sink_ = {};
  std::vector<TableRow> table_;
  std::vector<InFlightEvent *> batch_, submitted_;
  bool was_locked_ = false;
  Now now_ = {{1'000'000}, 1'000'000};
  ClaimRound claims_{*d_, *this, {.bytes = 100'000, .poll_ms = 100}};
  RecordRound records_{*d_, *this};
};

const Scenario dispatch_rounds("dispatch", [] { World().run(); });

}  // namespace
}  // namespace calls
