/*
 * dispatch.cpp: rounds of src/dispatch over a small table: claims, a failing event whose key is blocked and drains, a
 * row that another session has locked, a dead letter, recording, and rounds that are rolled back. As in the server,
 * "out of memory" rolls the round back and the next one tries again.
 */
#include <algorithm>
#include <memory>
#include <vector>

#include "dispatch/classify_row.h"
#include "dispatch/draining.h"
#include "dispatch/sink_scan.h"
#include "scenario.h"

using namespace dispatch;

namespace calls {
namespace {

struct OutOfMemory {};

/* One call of src/dispatch that says false when memory is short. */
template <class Call> void need(Call call) {
  if (!under_test(call))
    throw OutOfMemory();
}

struct TableRow {
  int64_t position;
  uint64_t key;
  int64_t blocked_by = 0;
  WallTime available_at = WALL_TIME_BEGIN;
  int32_t attempts = 0;
  bool dead = false;
};

class World {
public:
  static constexpr int64_t failing = 2, rejected = 3, locked = 5;

  World() {
    d_.reset(second_try("create()", [] { return under_test([] { return create(); }); }));
    sink_.id = 5;
    cursor_ = second_try("SinkCursors::add()", [&] { return under_test([&] { return d_->sink_cursors.add(); }); });
    for (int64_t position = 1; position <= 12; position++)
      table_.push_back({position, static_cast<uint64_t>(position % 3 + 1)});
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
      if (d_->blocked_keys.find(sink_.id, key) && d_->blocked_keys.find(sink_.id, key)->state == KeyState::BLOCKED)
        failed("a key is left blocked");
  }

private:
  size_t alive() const {
    return static_cast<size_t>(std::count_if(table_.begin(), table_.end(), [](auto &row) { return !row.dead; }));
  }
  TableRow *find(int64_t position) {
    auto at = std::find_if(table_.begin(), table_.end(), [&](auto &row) { return row.position == position; });
    return at == table_.end() ? nullptr : &*at;
  }

  /* ---- claiming ---- */

  RowVerdict classify(const TableRow &row, RowScan scan) {
    const Row facts = {row.position, row.key, row.available_at, row.blocked_by, row.attempts > 0, false, {}};
    RowDecision decision = under_test([&] { return classify_row(*d_, facts, {&sink_, cursor_, true}, scan); });
    if (decision.verdict == RowVerdict::OUT_OF_MEMORY)
      throw OutOfMemory();
    if (decision.verdict != RowVerdict::CLAIM)
      return decision.verdict;
    InFlightEvent *event = under_test([&] {
      return d_->in_flight.claim({.position = row.position,
                                  .key_hash = row.key,
                                  .sink = &sink_,
                                  .row = {},
                                  .attempts = row.attempts,
                                  .failed = row.attempts > 0,
                                  .bytes = 100,
                                  .shard = 0,
                                  .blocked_by = row.blocked_by,
                                  .due_since = 0,
                                  .late = false});
    });
    if (!event)
      throw OutOfMemory();
    cursor_->event_claimed(100);
    batch_.push_back(event);
    need([&] { return d_->event_claimed(event); });
    return RowVerdict::CLAIM;
  }

  void drain() {
    uint64_t hashes[8];
    size_t n = under_test([&] { return d_->blocked_keys.next_draining(sink_.id, hashes); });
    for (size_t i = 0; i < n && cursor_->free_slots() > 0; i++) {
      const KeyId id = {sink_.id, hashes[i]};
      bool blocked;
      need([&] { return block_by_unrecorded(*d_, id, &blocked); });
      if (blocked)
        continue;
      const BlockedKey *key = d_->blocked_keys.find(sink_.id, hashes[i]);
      const int64_t group = key->group;
      SinkScan scan = {RowScan::DRAINING, cursor_, cursor_->free_slots() + 1, key->drained,
                       drain_below(*d_, *cursor_, id, {})};
      for (const TableRow &row : table_)
        if (!row.dead && row.blocked_by == group && row.position > key->drained)
          if (scan.ends_before(row.position, row.available_at, now_.wall) ||
              !scan.row_read(row.position, row.available_at, classify(row, RowScan::DRAINING), true))
            break;
      need([&] { return drain_read_ended(*d_, scan, id, {}); });
    }
  }

  void read_due() {
    DueCursor &due = cursor_->due;
    if (due.next() > now_.wall)
      return;
    SinkScan scan = {RowScan::DUE, cursor_, READ_MIN, 0, 0};
    due.begin_read();
    for (const TableRow &row : table_)
      if (!row.dead && row.available_at != WALL_TIME_BEGIN && row.blocked_by == 0)
        if (scan.ends_before(row.position, row.available_at, now_.wall) ||
            !scan.row_read(row.position, row.available_at, classify(row, RowScan::DUE), true))
          break;
  }

  void read_locked() {
    LockedRows &rows = d_->locked_rows;
    if (rows.next_moment() > now_.moment)
      return;
    need([&] { return rows.take_due(); });
    for (int i = 0; i < rows.look_count(); i++) {
      TableRow *row = find(rows.looked(i).position);
      if (!row->dead && classify(*row, RowScan::RESCAN) == RowVerdict::STOP)
        rows.keep(i, sink_.id, row->key);
    }
  }

  void read_main() {
    MainRead read;
    while (under_test([&] { return d_->main_scan.begin_read(d_->round, &read); })) {
      for (const TableRow &row : table_)
        if (!row.dead && row.position > read.after)
          if (!d_->main_scan.row_read(row.position, classify(row, RowScan::MAIN), cursor_))
            break;
      d_->main_scan.end_read();
    }
  }

  void drop(InFlightEvent *event) {
    cursor_->event_dropped();
    d_->in_flight.give_back(event);
  }

  /* One row of the first batch is locked by another session: later events of its key wait behind it. */
  void lock() {
    std::vector<InFlightEvent *> kept;
    for (InFlightEvent *event : batch_)
      if (event->position == locked && !was_locked_) {
        const uint64_t key = event->key_hash;
        drop_first_ = event;
        need([&] { return d_->block_key(sink_.id, key, locked); });
        need([&] { return d_->locked_rows.add(locked, sink_.id, key); });
      }
    for (InFlightEvent *event : batch_) {
      if (event == drop_first_) {
        was_locked_ = true;
        drop(event);
      } else if (d_->blocked_keys.find_before(sink_.id, event->key_hash, event->position)) {
        const int64_t position = event->position;
        drop(event);
        cursor_->rewind(position);
      } else {
        kept.push_back(event);
      }
    }
    drop_first_ = nullptr;
    batch_ = kept;
  }

  void give_back(InFlightEvent *event) {
    const BlockedKey *key = d_->blocked_keys.find_before(sink_.id, event->key_hash, event->position);
    d_->blocked_keys.drain_again_from(sink_.id, event->key_hash, event->position);
    if (!key || event->blocked_by == key->group || !under_test([&] {
          return d_->marks.add_returned({event->position, {}, 0, sink_.id, event->key_hash});
        }))
      cursor_->rewind(event->position);
    d_->in_flight.give_back(event);
  }

  void roll_back() {
    for (InFlightEvent *event : std::exchange(batch_, {}))
      give_back(event);
    for (const Mark &mark : d_->marks.returned())
      cursor_->rewind(mark.position);
    under_test([&] {
      d_->roll_back_round();
      return true;
    });
  }

  void claim(bool fails) {
    const std::vector<TableRow> before = table_;
    batch_.clear();
    batch_.reserve(table_.size());
    d_->begin_round(now_, 100, 100'000);
    cursor_->set_free_slots(4, 100'000);
    try {
      need([&] { return d_->mark_returned(); });
      for (const Mark &mark : d_->marks.returned())
        if (mark.group == 0)
          cursor_->rewind(mark.position);
      drain();
      read_due();
      read_locked();
      read_main();
      lock();
      for (const Mark &mark : d_->marks.all()) {
        find(mark.position)->blocked_by = mark.group;
        if (mark.group != 0)
          need([&] { return d_->blocked_keys.marked(mark.sink, mark.key_hash, mark.group, mark.position); });
      }
      if (fails)
        throw OutOfMemory();
    } catch (const OutOfMemory &) {
      table_ = before;
      roll_back();
      return;
    }
    d_->commit_round();
    for (InFlightEvent *event : batch_)
      d_->in_flight.submitted(event, MOMENT_NONE);
    submitted_.insert(submitted_.end(), batch_.begin(), batch_.end());
  }

  /* ---- outcomes ---- */

  void answer() {
    std::vector<InFlightEvent *> answered = std::exchange(submitted_, {});
    for (InFlightEvent *event : answered) {
      Outcome outcome = event->position == failing && event->attempts < 2 ? Outcome::RETRY
                        : event->position == rejected                     ? Outcome::REJECTED
                                                                          : Outcome::SENT;
      /* Events behind the failing one were not sent. */
      if (const BlockedKey *key = d_->blocked_keys.find_before(sink_.id, event->key_hash, event->position);
          key && key->blocker == failing)
        outcome = Outcome::RETURNED;
      if (outcome == Outcome::SENT || outcome == Outcome::REJECTED)
        for (const TableRow &row : table_)
          if (!row.dead && row.key == event->key_hash && row.position < event->position &&
              !(d_->in_flight.find(row.position) && has_ended(d_->in_flight.find(row.position))))
            failed("event %ld was sent before event %ld", static_cast<long>(event->position),
                   static_cast<long>(row.position));
      if (d_->is_returned(event, outcome, true)) {
        give_back(event);
        continue;
      }
      /* Without memory for the blocked key the worker ends; the next one reads the rows anew. Here: it is tried
       * again, and nothing of the key is submitted before. */
      const Completion completion = {outcome, -1, outcome == Outcome::SENT ? nullptr : "refused", 0, false, false};
      if (!under_test([&] {
            return d_->event_ended(event, completion, {10, true, false}, now_);
          }) &&
          !under_test([&] { return d_->block_key(sink_.id, event->key_hash, event->position); }))
        failed("block_key() failed twice");
    }
  }

  void record(bool fails) {
    if (d_->in_flight.ended() == 0)
      return;
    const std::vector<TableRow> before = table_;
    const int most = under_test([&] { return d_->recording.begin(d_->in_flight, now_.moment); });
    try {
      if (most < 0)
        throw OutOfMemory();
      std::vector<InFlightEvent *> chosen(static_cast<size_t>(std::max(most, 1)));
      int n_failed = 0;
      chosen.resize(static_cast<size_t>(
          under_test([&] { return d_->recording.choose(d_->in_flight, chosen.data(), &n_failed); })));
      for (InFlightEvent *event : chosen) {
        TableRow *row = find(event->position);
        switch (under_test([&] { return d_->settle(event, FoundRow::OURS, Retention::NONE); })) {
        case Disposition::DEAD_LETTER:
          need([&] { return d_->dead_letter(sink_.id, row->key, row->position, false); });
          row->dead = true;
          break;
        case Disposition::DELETE:
          row->dead = true;
          break;
        case Disposition::RETRY:
          row->attempts++;
          row->available_at = next_attempt(event, 10, now_.wall);
          row->blocked_by = d_->group_behind_blocker(event);
          cursor_->due.expect(row->available_at);
          break;
        default:
          break;
        }
      }
      if (fails)
        throw OutOfMemory();
    } catch (const OutOfMemory &) {
      table_ = before;
      under_test([&] {
        d_->roll_back_recording();
        return true;
      });
      return;
    }
    under_test([&] {
      d_->commit_recording(1);
      d_->in_flight.unflushed.safe(1);
      return true;
    });
  }

  std::unique_ptr<Dispatch> d_;
  SinkInFlight sink_ = {};
  SinkCursor *cursor_;
  std::vector<TableRow> table_;
  std::vector<InFlightEvent *> batch_, submitted_;
  InFlightEvent *drop_first_ = nullptr;
  bool was_locked_ = false;
  Now now_ = {{1'000'000}, 1'000'000};
};

const Scenario dispatch_rounds("dispatch", [] { World().run(); });

}  // namespace
}  // namespace calls
