/* record.cpp: the table as the port of a round that records (dispatch/round/record_port.h). */
#include <algorithm>

#include "test/simulate/worker.h"

namespace simulate {

using namespace dispatch;

static constexpr int64_t RETRY_DELAYS_MS[] = {20, 100, 400, 1000};

Retention Worker::retention_of(const InFlightEvent &) {
  return Retention::NONE;
}

int64_t Worker::retry_delay_ms(const InFlightEvent &event) {
  return RETRY_DELAYS_MS[std::min(event.attempts, 3)] + static_cast<int64_t>(world_.nature(event.position) % 20);
}

void Worker::flush_recordings() {
  settle_unflushed(INT32_MAX);
}

/* ---- rows of ended events ------------------------------------------------------------------------------------- */

/* A user's trigger may make the recording fail. */
void Worker::fail_if_bad(int64_t position, SinkId sink) {
  if (world_.is_bad(position, sink))
    throw Failed{true};
}

void Worker::remove_sent(const InFlightEvent *event) {
  fail_if_bad(event->position, event->sink->id);
  world_.log(event->position, "worker %d records that it was sent", index_);
  table_.remove(event->position, xid());
  recorded_.push_back(event->position);
}

size_t Worker::delete_unmodified(std::span<InFlightEvent *> events) {
  const auto end = std::partition(events.begin(), events.end(), [this](const InFlightEvent *event) {
    return table_.is_unmodified(event->position, event->row.line);
  });
  std::for_each(events.begin(), end, [this](const InFlightEvent *event) { remove_sent(event); });
  return end - events.begin();
}

void Worker::lock_ended(std::span<InFlightEvent *const> events,
                        FunctionRef<void, InFlightEvent *, FoundRow, const RowHandle &> visit) {
  for (InFlightEvent *event : events) {
    RowHandle handle = event->row;
    const LockResult result = table_.lock_row(event->position, &handle.line, xid(), true);
    FoundRow found = result == LockResult::GONE ? FoundRow::GONE : FoundRow::LOCKED;
    if (result == LockResult::LOCKED) {
      const Version &version = table_.version(event->position, handle.line);
      found = still_its_row(event, find_sink(version.sink), version.key_hash) ? FoundRow::OURS : FoundRow::GONE;
    }
    visit(event, found, handle);
  }
}

void Worker::to_dead_letters(int64_t position, SinkId sink, int64_t overtaken_by, bool spent, const char *error) {
  Version dead = *table_.find(position, latest()).version;
  fail_if_bad(position, sink);
  world_.log(position, "worker %d makes it a dead letter", index_);
  table_.remove(position, xid());
  dead.failed = true;
  dead.attempts += spent;
  dead.blocked_by = 0;
  dead.available_at = WALL_TIME_BEGIN;
  dead.redrive = Redrive::NOT;
  dead.error = error;
  if (overtaken_by != 0)
    dead.overtaken_by = overtaken_by;
  table_.insert(position, dead, xid());
  world_.became_dead_letter(position);
}

void Worker::reschedule(const RowToWrite &row) {
  const InFlightEvent *event = row.event;
  fail_if_bad(event->position, event->sink->id);
  Version *version = table_.update(event->position, xid());
  version->attempts += event->outcome == Outcome::RETRY;
  version->error = "refused";
  version->tried_at = event->ended_at;
  version->available_at = row.next_attempt;
  version->blocked_by = row.group;
  if (version->redrive == Redrive::IN_ORDER)
    version->redrive = Redrive::NOT;
  world_.log(event->position, "worker %d reschedules it, group %lld", index_, static_cast<long long>(row.group));
}

void Worker::write(Disposition disposition, std::span<const RowToWrite> rows) {
  for (const RowToWrite &row : rows)
    if (disposition == Disposition::RETRY)
      reschedule(row);
    else if (disposition == Disposition::DEAD_LETTER)
      to_dead_letters(row.event->position, row.event->sink->id, 0, true, "refused");
    else
      remove_sent(row.event);
}

/* ---- earlier rows --------------------------------------------------------------------------------------------- */

void Worker::find_earlier(std::span<const SentKey> keys, FunctionRef<void, uint32_t, const EarlierRow &> visit) {
  const Snapshot snapshot = latest();
  for (uint32_t i = 0; i < keys.size(); i++)
    for (int64_t position : table_.special()) {
      const InFlightEvent *last = keys[i].last;
      if (position >= last->position)
        break;
      const Found found = table_.find(position, snapshot);
      const Version *row = found.version;
      if (row && row->sink == last->sink->id && row->key_hash == last->key_hash && row->overtaken_by == 0 &&
          (row->failed || row->tried_at != WALL_TIME_NEVER || row->redrive != Redrive::NOT))
        visit(i, {position,
                  {static_cast<uint32_t>(position), found.line, 0, 0},
                  row->failed,
                  !row->failed && row->redrive == Redrive::IN_ORDER});
    }
}

void Worker::lock_earlier(std::span<OvertakenRow> dead_letters, std::span<OvertakenRow> pending) {
  pass(true); /* others act between the reads and the locks */
  for (OvertakenRow &row : dead_letters) {
    const Found dead = table_.find(row.position, latest());
    row.locked = dead.version && dead.version->failed && table_.lock(row.position, xid());
  }
  for (OvertakenRow &row : pending)
    row.locked = table_.lock_row(row.position, &row.handle.line, xid(), false) == LockResult::LOCKED;
}

void Worker::write_overtaken(EarlierRowAction action, std::span<const OvertakenRow> rows) {
  for (const OvertakenRow &row : rows) {
    if (!row.locked)
      continue;
    if (action == EarlierRowAction::DEAD_LETTER_AGAIN) {
      const SinkId sink = d_->out_of_order.keys()[row.key].last->sink->id;
      to_dead_letters(row.position, sink, row.overtaken_by, false, "redriven too late");
    } else if (Version *version = table_.update(row.position, xid())) {
      version->overtaken_by = row.overtaken_by;
      world_.log(row.position, "worker %d notes that %lld was sent before it", index_,
                 static_cast<long long>(row.overtaken_by));
    }
  }
}

}  // namespace simulate
