/* record.cpp: server/record/record.cpp, record_rows.cpp and out_of_order.cpp: one transaction records many events. */
#include <algorithm>

#include "test/simulate/worker.h"

namespace simulate {

using namespace dispatch;

static constexpr int64_t RETRY_DELAYS_MS[] = {20, 100, 400, 1000};

/* row_lock() with is_for_its_sink() */
FoundRow Worker::lock_ended(InFlightEvent *event) {
  uint16_t line = event->row.line;
  const LockResult result = table_.lock_row(event->position, &line, xid(), true);
  if (result != LockResult::LOCKED)
    return result == LockResult::GONE ? FoundRow::GONE : FoundRow::LOCKED;
  const Version &version = table_.version(event->position, line);
  WorkerSink *sink = find_sink(version.sink);
  const bool is_for_its_sink = sink == sink_of(event) && !has_other_key(event, version.key_hash, sink->rule.ordered);
  if (sink && !is_for_its_sink)
    event->given_to = sink->oid;
  return is_for_its_sink ? FoundRow::OURS : FoundRow::GONE;
}

void Worker::remove_sent(InFlightEvent *event) {
  if (world_.is_bad(event->position, event->sink->id))
    throw Failed{true};
  world_.log(event->position, "worker %d records that it was sent", index_);
  table_.remove(event->position, xid());
  recorded_.push_back(event->position);
}

/* recorded_rows_move_to_dead_letters(), move_to_dead_letters of out_of_order.cpp */
void Worker::to_dead_letters(int64_t position, WorkerSink &sink, int64_t overtaken_by, bool spent,
                             const char *error) {
  const Found row = table_.find(position, latest());
  Version dead = *row.version;
  need(d_->dead_letter(sink.oid, sink.rule.ordered ? dead.key_hash : 0, position, sink.rule.hold));
  if (world_.is_bad(position, sink.oid))
    throw Failed{true};
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

void Worker::record_one(InFlightEvent *event, Disposition disposition, Now now) {
  WorkerSink &sink = *sink_of(event);
  switch (disposition) {
  case Disposition::DELETE:
  case Disposition::KEEP:
    remove_sent(event);
    break;
  case Disposition::DEAD_LETTER:
    to_dead_letters(event->position, sink, 0, true, event->error);
    break;
  case Disposition::RETRY: {
    if (world_.is_bad(event->position, event->sink->id))
      throw Failed{true};
    const int64_t delay =
        RETRY_DELAYS_MS[std::min(event->attempts, 3)] + static_cast<int64_t>(world_.nature(event->position) % 20);
    const WallTime next = next_attempt(event, delay, now.wall);
    sink.cursor->due.expect(next);
    const int64_t group = d_->group_behind_blocker(event);
    Version *version = table_.update(event->position, xid());
    version->attempts += event->outcome == Outcome::RETRY;
    version->error = "refused";
    version->tried_at = event->ended_at;
    version->available_at = next;
    version->blocked_by = group;
    if (version->redrive == Redrive::IN_ORDER)
      version->redrive = Redrive::NOT;
    world_.log(event->position, "worker %d reschedules it, group %lld", index_, static_cast<long long>(group));
    break;
  }
  case Disposition::FORGET:
  case Disposition::LATER:
    break;
  }
}

/* record_rows(): the events of one kind after those of the other. */
void Worker::record_rows(std::vector<InFlightEvent *> &events, Now now) {
  std::vector<std::pair<InFlightEvent *, Disposition>> settled;
  for (InFlightEvent *event : events) {
    const FoundRow found = lock_ended(event);
    settled.emplace_back(event, d_->settle(event, found, Retention::NONE));
  }
  for (Disposition each : {Disposition::DELETE, Disposition::KEEP, Disposition::DEAD_LETTER, Disposition::RETRY})
    for (const auto &[event, disposition] : settled)
      if (disposition == each)
        record_one(event, disposition, now);
}

void Worker::record_ended(Now now) {
  const int max = d_->recording.begin(d_->in_flight, now.moment);
  std::vector<InFlightEvent *> chosen(std::max(max, 1)), plain, sent;
  int n_failed = 0;
  const int n = d_->recording.choose(d_->in_flight, chosen.data(), &n_failed);
  chosen.resize(n);

  if (n_failed > 0) {
    std::vector<InFlightEvent *> failed(chosen.begin(), chosen.begin() + n_failed);
    record_rows(failed, now);
    pass(true);
  }
  for (int i = n_failed; i < n; i++) {
    InFlightEvent *event = chosen[i];
    const bool unmodified = !d_->may_be_out_of_order(event) && table_.is_unmodified(event->position, event->row.line);
    (unmodified ? plain : sent).push_back(event);
  }
  for (InFlightEvent *event : plain)
    remove_sent(event);
  for (InFlightEvent *event : plain)
    d_->in_flight.recorded(event);
  if (sent.empty())
    return;
  std::vector<InFlightEvent *> ready;
  for (InFlightEvent *event : sent)
    if (d_->recording.is_ready(event, lock_ended(event), Retention::NONE))
      ready.push_back(event);
  mark_out_of_order(ready, now.moment);
  for (const InFlightEvent *event : sent)
    if (event->record_after > now.moment)
      world_.truth().held(event->position);
  record_rows(sent, now);
}

/* out_of_order_mark() */
void Worker::mark_out_of_order(std::vector<InFlightEvent *> &sent, Moment now) {
  OutOfOrder &out = d_->out_of_order;
  out.begin(now);
  for (InFlightEvent *event : sent)
    if (d_->may_be_out_of_order(event))
      need(out.add(event));
  need(out.group(d_->in_flight));
  if (out.keys().empty())
    return;
  const Snapshot snapshot = latest();
  for (uint32_t i = 0; i < out.keys().size(); i++) {
    const InFlightEvent *last = out.keys()[i].last;
    for (int64_t position : table_.special()) {
      if (position >= last->position)
        break;
      const Found row = table_.find(position, snapshot);
      if (row.version == nullptr || row.version->sink != last->sink->id || row.version->key_hash != last->key_hash ||
          row.version->overtaken_by != 0 ||
          !(row.version->failed || row.version->tried_at != WALL_TIME_NEVER || row.version->redrive != Redrive::NOT))
        continue;
      const bool in_order = !row.version->failed && row.version->redrive == Redrive::IN_ORDER;
      need(out.found(d_->in_flight, i,
                     {position, {static_cast<uint32_t>(position), row.line, 0, 0}, row.version->failed, in_order}));
    }
  }
  out.all_found();
  if (out.rows().empty())
    return;
  pass(true);
  for (OvertakenRow &row : out.rows()) {
    if (row.fate == EarlierFate::MARK_DEAD_LETTER) {
      const Found dead = table_.find(row.position, latest());
      row.locked = dead.version && dead.version->failed && table_.lock(row.position, xid());
    } else {
      uint16_t line = row.handle.line;
      row.locked = table_.lock_row(row.position, &line, xid(), false) == LockResult::LOCKED;
    }
  }
  out.put_off_after_unlocked();
  for (const OvertakenRow &row : out.rows()) {
    if (!row.locked)
      continue;
    if (row.fate == EarlierFate::DEAD_LETTER_AGAIN) {
      const InFlightEvent *later = out.keys()[row.key].last;
      to_dead_letters(row.position, *sink_of(later), row.overtaken_by, false, "redriven too late");
    } else if (Version *version = table_.update(row.position, xid())) {
      version->overtaken_by = row.overtaken_by;
      world_.log(row.position, "worker %d notes that %lld was sent before it", index_,
                 static_cast<long long>(row.overtaken_by));
    }
  }
}

bool Worker::count_unrecorded() {
  bool room = false;
  std::vector<int> before;
  for (WorkerSink &sink : sinks_) {
    before.push_back(std::exchange(sink.left, 0));
    sink.left_alone = 0;
  }
  for (const InFlightEvent *event = d_->in_flight.first_ended(); event; event = event->next) {
    sink_of(event)->left++;
    sink_of(event)->left_alone += event->record_failures > 0;
  }
  for (size_t i = 0; i < sinks_.size(); i++)
    room = room || sinks_[i].left < before[i];
  return room;
}

bool Worker::record_committed() {
  for (InFlightEvent *event = d_->in_flight.first_ended(); event; event = event->next)
    if (is_recorded(event)) {
      if (WorkerSink *given_to = find_sink(event->given_to))
        given_to->cursor->rewind(event->position);
      sink_of(event)->unrecorded--;
    }
  for (int64_t position : std::exchange(recorded_, {}))
    world_.truth().recorded(position);
  if (d_->in_flight.unflushed.flush_wanted(INT32_MAX) != 0)
    settle_unflushed(INT32_MAX);
  d_->commit_recording(last_lsn_);
  return count_unrecorded();
}

}  // namespace simulate
