/* claim.cpp: server/claim/claim.cpp, claim_lock.cpp and classify_row.cpp: a round of claiming. */
#include <algorithm>

#include "test/simulate/worker.h"

namespace simulate {

using namespace dispatch;

static constexpr int64_t ROUND_BYTES = 1 << 18;

bool Worker::is_ours(const Version &row, int64_t position, WorkerSink **sink) {
  *sink = find_sink(row.sink);
  return *sink != nullptr && is_mine(*sink, shard_of(row.key_hash, position));
}

/* ---- one row -------------------------------------------------------------------------------------------------- */

InFlightEvent *Worker::claim_row(WorkerSink &sink, const Found &row) {
  const Version &version = *row.version;
  const auto bytes = static_cast<uint32_t>(100 + world_.nature(row.position) % 1000);
  InFlightEvent *event = d_->in_flight.claim({
      .position = row.position,
      .key_hash = sink.rule.ordered ? version.key_hash : 0,
      .sink = &sink.events,
      .row = {static_cast<uint32_t>(row.position), row.line, static_cast<uint32_t>(version.xmin), 0},
      .attempts = version.attempts,
      .failed = version.tried_at != WALL_TIME_NEVER,
      .bytes = bytes,
      .shard = static_cast<uint8_t>(shard_of(version.key_hash, row.position)),
      .blocked_by = version.blocked_by,
      .due_since = 0,
      .late = sink.rule.ordered && version.redrive == Redrive::LATE && version.overtaken_by != 0,
  });
  need(event != nullptr);
  sink.in_flight++;
  sink.bytes_in_flight += bytes;
  sink.cursor->event_claimed(bytes);
  return event;
}

RowVerdict Worker::classify_at(const Found &row, WallTime available_at, RowScan scan, WorkerSink **sink_out) {
  const Version &version = *row.version;
  const bool ours = is_ours(version, row.position, sink_out);
  WorkerSink *sink = *sink_out;
  if (!ours)
    return RowVerdict::SKIP;
  if (row.position < sink->cursor->low_watermark())
    sink->cursor->lower_watermark(row.position);
  const dispatch::Row facts = {
      .position = row.position,
      .key_hash = version.key_hash,
      .available_at = available_at,
      .blocked_by = version.blocked_by,
      .failed = version.tried_at != WALL_TIME_NEVER,
      .redriven = version.redrive != Redrive::NOT,
      .handle = {static_cast<uint32_t>(row.position), row.line, static_cast<uint32_t>(version.xmin), 0},
  };
  const RowDecision decision = classify_row(*d_, facts, {&sink->events, sink->cursor, sink->rule.ordered}, scan);
  need(decision.verdict != RowVerdict::OUT_OF_MEMORY);
  world_.log(row.position, "worker %d classifies it: verdict %d, scan %d, %s (%lld)", index_,
             static_cast<int>(decision.verdict), static_cast<int>(scan),
             decision.reason ? decision.reason : "claimed", static_cast<long long>(decision.blocker));
  if (decision.verdict != RowVerdict::CLAIM)
    return decision.verdict;
  InFlightEvent *event = claim_row(*sink, row);
  sink->batch.push_back(event);
  need(d_->event_claimed(event));
  needed_lsn_ = std::max(needed_lsn_, table_.lsn_of(version.xmin));
  return RowVerdict::CLAIM;
}

RowVerdict Worker::classify(const Found &row, RowScan scan, WorkerSink **sink) {
  return classify_at(row, row.version->available_at, scan, sink);
}

/* ---- a round -------------------------------------------------------------------------------------------------- */

void Worker::read_fresh_shards(const Snapshot &snapshot) {
  std::vector<int64_t> groups;
  const auto is_fresh = [this](const Found &row, WorkerSink **sink) {
    return is_ours(*row.version, row.position, sink) && (*sink)->rule.ordered &&
           (*sink)->shards.is_fresh(shard_of(row.version->key_hash, row.position));
  };
  for (int64_t position : table_.special()) {
    const Found row = table_.find(position, snapshot);
    WorkerSink *sink;
    if (row.version == nullptr || row.version->failed)
      continue;
    const Version &version = *row.version;
    if (version.available_at != WALL_TIME_BEGIN && version.blocked_by == 0 && version.tried_at != WALL_TIME_NEVER &&
        is_fresh(row, &sink))
      need(d_->block_key(sink->oid, version.key_hash, position));
  }
  for (int64_t position : table_.special()) { /* DISTINCT ON (blocked_by) */
    const Found row = table_.find(position, snapshot);
    WorkerSink *sink;
    if (row.version == nullptr || row.version->failed || row.version->blocked_by == 0 ||
        std::find(groups.begin(), groups.end(), row.version->blocked_by) != groups.end())
      continue;
    groups.push_back(row.version->blocked_by);
    if (is_fresh(row, &sink))
      need(d_->blocked_keys.drain(sink->oid, row.version->key_hash, row.version->blocked_by));
  }
  d_->rescan_cursor.restart();
  for (WorkerSink &sink : sinks_)
    sink.shards.fresh_read();
}

void Worker::mark_returned() {
  need(d_->mark_returned());
  for (const Mark &mark : d_->marks.returned())
    if (mark.group == 0)
      find_sink(mark.sink)->cursor->rewind(mark.position);
}

/* is_news(): all that a round could find, when nothing waits in memory. */
bool Worker::has_news() {
  const Snapshot snapshot = latest();
  int64_t cursor = INT64_MAX;
  for (const WorkerSink &sink : sinks_) {
    if (sink.is_stopped())
      continue;
    cursor = std::min(cursor, sink.cursor->position());
    if (!sink.cursor->late.empty() || sink.cursor->has_backlog() || sink.cursor->early_retry.going())
      return true;
  }
  if (!d_->marks.returned().empty() || any_fresh() || d_->blocked_keys.any())
    return true;
  const RescanPlace after = d_->rescan_cursor.after();
  for (const QueueEntry &entry : table_.queue)
    if (std::pair(entry.xact, entry.position) > std::pair(after.xact, after.position) &&
        table_.sees(snapshot, entry.xmin, entry.xmax))
      return true;
  const auto is_pending = [&](int64_t position) {
    const Found row = table_.find(position, snapshot);
    return row.version && !row.version->failed;
  };
  if (cursor != INT64_MAX)
    for (int64_t position = std::max(cursor + 1, table_.first_alive()); position <= table_.last_position();
         position++)
      if (is_pending(position))
        return true;
  for (Xid xid : ended_transactions(snapshot))
    for (int64_t position : table_.rows_of(xid))
      if (position <= cursor && is_pending(position))
        return true;
  need(d_->late_commits.note_running(transactions_of(snapshot)));
  return false;
}

/* in_flight.cpp: the WAL of recordings is flushed before they fill half of outbox.max_in_flight. */
void Worker::settle_unflushed(int max_events) {
  Unflushed &unflushed = d_->in_flight.unflushed;
  if (unflushed.events() == 0)
    return;
  if (const uint64_t lsn = unflushed.flush_wanted(max_events); lsn != 0)
    table_.flush(lsn);
  unflushed.safe(table_.flushed());
}

bool Worker::claim_events(Now now) {
  bool more = false;
  const int max = world_.settings().max_in_flight;

  for (WorkerSink &sink : sinks_)
    sink.batch.clear();
  settle_unflushed(max);
  d_->begin_round(now, d_->in_flight.free_events(max, 1 << 20),
                  std::min<int64_t>(d_->in_flight.free_bytes(1 << 20), ROUND_BYTES));
  mark_returned();
  if (any_fresh())
    dead_stale_ = true;
  if (dead_stale_)
    read_dead_letters();
  const Snapshot snapshot = latest();
  pass(true);
  if (any_fresh())
    read_fresh_shards(snapshot);
  find_late_commits(snapshot);
  for (WorkerSink &sink : sinks_) {
    if (sink.cursor->free_slots() <= 0)
      continue;
    more |= scan_draining(sink, snapshot);
    scan_late(sink, snapshot);
    more |= !sink.cursor->late.empty() && sink.cursor->free_slots() > 0;
    more |= scan_due(sink, snapshot);
    more |= scan_early_retry(sink, snapshot);
  }
  claim_locked_rows(snapshot);
  pass(true);
  if (rescan_wanted_) {
    const bool again = check_blockers(snapshot);
    rescan_wanted_ = rescan_claim(snapshot, &more) || again;
    more |= again;
  }
  more |= scan_main(snapshot);
  for (WorkerSink &sink : sinks_)
    more |= sink.cursor->free_slots() > 0 && sink.cursor->advanced() && d_->blocked_keys.any_draining(sink.oid);
  more |= d_->round.free_bytes <= 0 && d_->in_flight.free_events(max, 1 << 20) > 0;
  pass(true);
  if (d_->round.n_claimed > 0 || !d_->marks.all().empty())
    lock_and_mark();
  return more | d_->round.dropped;
}

void Worker::claim_return(InFlightEvent *event) {
  WorkerSink *sink = sink_of(event), *given_to = find_sink(event->given_to);
  const int64_t position = event->position;
  const BlockedKey *key = d_->blocked_keys.find_before(sink->oid, event->key_hash, position);

  world_.log(position, "worker %d takes it back", index_);
  d_->blocked_keys.drain_again_from(sink->oid, event->key_hash, position);
  if (given_to)
    given_to->cursor->rewind(position);
  if (event->early)
    sink->cursor->early_retry.returned();
  sink->in_flight--;
  sink->bytes_in_flight -= event->bytes;
  if (key == nullptr)
    sink->cursor->rewind(position);
  else if (event->blocked_by != key->group)
    need(d_->marks.add_returned({position, event->row, 0, sink->oid, event->key_hash}));
  d_->in_flight.give_back(event);
}

void Worker::claim_give_back() {
  if (!d_->round.open)
    return;
  for (WorkerSink &sink : sinks_)
    for (InFlightEvent *event : std::exchange(sink.batch, {}))
      if (event)
        claim_return(event);
  for (const Mark &mark : d_->marks.returned())
    find_sink(mark.sink)->cursor->rewind(mark.position);
  d_->roll_back_round();
}

/* ---- claim_lock.cpp ------------------------------------------------------------------------------------------- */

void Worker::drop_event(InFlightEvent *event) {
  WorkerSink *sink = sink_of(event);
  world_.log(event->position, "worker %d drops it from the batch", index_);
  sink->in_flight--;
  sink->bytes_in_flight -= event->bytes;
  sink->cursor->event_dropped();
  d_->in_flight.give_back(event);
}

void Worker::prune(WorkerSink &sink) {
  std::vector<InFlightEvent *> kept;
  for (InFlightEvent *event : sink.batch) {
    if (event == nullptr)
      continue;
    if (d_->blocked_keys.find_before(sink.oid, event->key_hash, event->position)) {
      const int64_t position = event->position;
      drop_event(event);
      sink.cursor->rewind(position);
      continue;
    }
    kept.push_back(event);
  }
  sink.batch = std::move(kept);
}

void Worker::lock_and_mark() {
  bool pruned = d_->round.reordered;
  struct Write {
    int64_t position, group;
  };
  std::vector<Write> writes;

  for (WorkerSink &sink : sinks_)
    for (InFlightEvent *&place : sink.batch) {
      InFlightEvent *event = place;
      uint16_t line = event->row.line;
      if (table_.is_unmodified(event->position, line))
        continue;
      const LockResult result = table_.lock_row(event->position, &line, xid(), false);
      if (result == LockResult::LOCKED)
        continue;
      place = nullptr;
      pruned = d_->round.dropped = true;
      if (result == LockResult::BUSY) {
        need(d_->block_key(sink.oid, event->key_hash, event->position));
        need(d_->locked_rows.add(event->position, sink.oid, event->key_hash));
      } else {
        d_->blocked_keys.release(sink.oid, event->key_hash, event->position);
      }
      drop_event(event);
    }
  for (const Mark &mark : d_->marks.all()) {
    uint16_t line = mark.row.line;
    const LockResult result = table_.lock_row(mark.position, &line, xid(), false);
    if (result == LockResult::BUSY)
      need(d_->locked_rows.add(mark.position, mark.sink, mark.key_hash));
    if (result != LockResult::LOCKED)
      continue;
    writes.push_back({mark.position, mark.group});
    if (mark.group != 0)
      need(d_->blocked_keys.marked(mark.sink, mark.key_hash, mark.group, mark.position));
  }
  if (pruned)
    for (WorkerSink &sink : sinks_)
      prune(sink);
  for (const Write &write : writes)
    if (Version *version = table_.update(write.position, xid())) {
      version->blocked_by = write.group;
      world_.log(write.position, "worker %d marks it: group %lld", index_, static_cast<long long>(write.group));
    }
}

}  // namespace simulate
