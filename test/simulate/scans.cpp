/*
 * scans.cpp: the ways in which a round comes across rows: server/claim/scans.cpp, rescan.cpp, locked_rows.cpp,
 * late_commits.cpp, early_retry.cpp, and server/inflight/dead_letters.cpp. Each function is the one of that name.
 */
#include <algorithm>

#include "dispatch/draining.h"
#include "test/simulate/worker.h"

namespace simulate {

using namespace dispatch;

/* ---- late commits --------------------------------------------------------------------------------------------- */

TransactionSnapshot Worker::transactions_of(const Snapshot &snapshot) {
  running_.clear();
  for (Xid xid : snapshot.running)
    running_.push_back(xid_with_epoch(static_cast<uint32_t>(xid), snapshot.next));
  return {running_.data(), running_.size(), xid_with_epoch(static_cast<uint32_t>(snapshot.xmax), snapshot.next),
          table_.next_xid()};
}

std::vector<Xid> Worker::ended_transactions(const Snapshot &snapshot) {
  std::vector<Xid> ended;
  need(d_->late_commits.find_ended(transactions_of(snapshot)));
  for (int i = 0; i < d_->late_commits.ended_count(); i++)
    ended.push_back(d_->late_commits.ended(i));
  return ended;
}

void Worker::find_late_commits(const Snapshot &snapshot) {
  int64_t farthest = 0;
  for (const WorkerSink &sink : sinks_)
    farthest = std::max(farthest, sink.cursor->position());
  const std::vector<Xid> ended = ended_transactions(snapshot);
  if (farthest > 0)
    for (Xid xid : ended)
      for (int64_t position : table_.rows_of(xid)) {
        const Found row = table_.find(position, snapshot);
        if (position > farthest || row.version == nullptr || row.version->failed || row.version->xact != xid)
          continue;
        for (WorkerSink &sink : sinks_)
          need(sink.cursor->late_commit(xid, position));
        break;
      }
  need(d_->late_commits.note_running(transactions_of(snapshot)));
}

/* ---- one sink ------------------------------------------------------------------------------------------------- */

/* False: the read ends. */
bool Worker::visit(WorkerSink &sink, SinkScan &scan, const Found &row, uint64_t drains) {
  const Version &version = *row.version;
  RowVerdict verdict = RowVerdict::SKIP;
  if (scan.ends_before(row.position, version.available_at, d_->round.now.wall))
    return false;
  WorkerSink *its = find_sink(version.sink);
  if (its == &sink && !(scan.scan == RowScan::DRAINING && version.key_hash != drains))
    verdict = classify(row, scan.scan, &its);
  return scan.row_read(row.position, version.available_at, verdict, its != nullptr);
}

void Worker::scan_late(WorkerSink &sink, const Snapshot &snapshot) {
  LateTransactions &late = sink.cursor->late;
  bool all = true;
  while (all && !late.empty() && sink.cursor->free_slots() > 0) {
    const LateTransaction first = late.first();
    SinkScan scan = {RowScan::LATE, sink.cursor, READ_MAX, first.after, 0};
    for (int64_t position : table_.rows_of(first.xid)) {
      if (position <= first.after || position > first.upto)
        continue;
      const Found row = table_.find(position, snapshot);
      if (row.version && !row.version->failed && row.version->xact == first.xid && !visit(sink, scan, row))
        break;
    }
    all = scan.all_read();
    late.first_read(scan.last_position, all);
  }
}

void Worker::drain(WorkerSink &sink, uint64_t key_hash, const Snapshot &snapshot) {
  const KeyId id = {sink.oid, key_hash};
  bool blocked;
  need(block_by_unrecorded(*d_, id, &blocked));
  if (blocked)
    return;
  const BlockedKey *key = d_->blocked_keys.find(sink.oid, key_hash);
  const int64_t group = key->group, drained = key->drained;
  const DrainStops stops = sink.rule.hold ? dead_letter_stops(sink, key_hash, snapshot) : DrainStops();
  const int limit = std::min(sink.cursor->free_slots() + 1, READ_MAX);
  SinkScan scan = {RowScan::DRAINING, sink.cursor, limit, drained, drain_below(*d_, *sink.cursor, id, stops)};
  int n = 0;
  world_.log(0, "worker %d drains a key of sink %u: group %lld after %lld, below %lld", index_, sink.oid,
             static_cast<long long>(group), static_cast<long long>(drained), static_cast<long long>(scan.below));
  for (auto at = table_.special().upper_bound(drained); at != table_.special().end() && n < limit; ++at) {
    const Found row = table_.find(*at, snapshot);
    if (row.version == nullptr || row.version->failed || row.version->blocked_by != group)
      continue;
    n++;
    if (!visit(sink, scan, row, key_hash))
      break;
  }
  need(drain_read_ended(*d_, scan, id, stops));
}

bool Worker::scan_draining(WorkerSink &sink, const Snapshot &snapshot) {
  static constexpr int DRAINING_KEYS_MAX = 8; /* few, so that keys take turns */
  uint64_t hashes[DRAINING_KEYS_MAX];
  const int n = static_cast<int>(d_->blocked_keys.next_draining(sink.oid, hashes));
  for (int i = 0; i < n && sink.cursor->free_slots() > 0; i++)
    drain(sink, hashes[i], snapshot);
  return n == DRAINING_KEYS_MAX && sink.cursor->free_slots() > 0;
}

/* Rows with a time of their own and without a mark, by time and position. */
std::vector<Found> Worker::rows_with_time(SinkId sink, WallTime after, int64_t after_position, int limit,
                                          const Snapshot &snapshot) {
  std::vector<Found> rows;
  for (int64_t position : table_.special()) {
    const Found row = table_.find(position, snapshot);
    if (row.version && !row.version->failed && row.version->sink == sink &&
        row.version->available_at != WALL_TIME_BEGIN && row.version->blocked_by == 0 &&
        std::pair(row.version->available_at, position) > std::pair(after, after_position))
      rows.push_back(row);
  }
  std::sort(rows.begin(), rows.end(), [](const Found &a, const Found &b) {
    return std::pair(a.version->available_at, a.position) < std::pair(b.version->available_at, b.position);
  });
  if (rows.size() > static_cast<size_t>(limit))
    rows.resize(limit);
  return rows;
}

bool Worker::scan_due(WorkerSink &sink, const Snapshot &snapshot) {
  DueCursor &due = sink.cursor->due;
  const int limit = read_limit(sink.cursor->free_slots());
  if (due.next() > d_->round.now.wall || sink.cursor->free_slots() <= 0)
    return false;
  SinkScan scan = {RowScan::DUE, sink.cursor, limit, 0, 0};
  const std::vector<Found> rows = rows_with_time(sink.oid, due.after(), due.after_position(), limit, snapshot);
  due.begin_read();
  for (const Found &row : rows)
    if (!visit(sink, scan, row))
      break;
  if (scan.stopped || scan.all_read())
    return false;
  due.full();
  return true;
}

bool Worker::scan_early_retry(WorkerSink &sink, const Snapshot &snapshot) {
  EarlyRetry &pass = sink.cursor->early_retry;
  const int limit = read_limit(sink.cursor->free_slots());
  int n = 0;
  if (!pass.going() || sink.cursor->free_slots() <= 0)
    return false;
  for (const Found &row : rows_with_time(sink.oid, pass.after(), pass.after_position(), limit, snapshot)) {
    const Version &version = *row.version;
    n++;
    const std::string_view error = version.error ? std::string_view(version.error) : std::string_view();
    if (pass.frees({version.available_at, version.tried_at, error}, d_->round.now.wall)) {
      WorkerSink *its = &sink;
      const RowVerdict verdict = row.position > sink.cursor->position()
                                     ? RowVerdict::STOP
                                     : classify_at(row, WALL_TIME_BEGIN, RowScan::DUE, &its);
      if (verdict == RowVerdict::CLAIM)
        d_->in_flight.find(row.position)->early = true;
      if (verdict == RowVerdict::STOP) {
        sink.cursor->set_has_backlog(true);
        return false;
      }
    }
    pass.passed(version.available_at, row.position);
  }
  bool to_be_recorded = false;
  for (const InFlightEvent *event = d_->in_flight.first_ended(); event; event = event->next)
    to_be_recorded |= event->sink == &sink.events && event->outcome == Outcome::DEFERRED && !is_recorded(event);
  pass.end_read(n == limit || to_be_recorded);
  return pass.going();
}

/* ---- all sinks ------------------------------------------------------------------------------------------------ */

bool Worker::scan_main(const Snapshot &snapshot) {
  MainRead read;
  while (d_->main_scan.begin_read(d_->round, &read)) {
    int n = 0;
    for (int64_t position = std::max(read.after + 1, table_.first_alive());
         position <= table_.last_position() && n < read.limit; position++) {
      const Found row = table_.find(position, snapshot);
      if (row.version == nullptr || row.version->failed)
        continue;
      n++;
      WorkerSink *sink;
      const RowVerdict verdict = classify(row, RowScan::MAIN, &sink);
      if (!d_->main_scan.row_read(position, verdict, sink ? sink->cursor : nullptr))
        break;
    }
    d_->main_scan.end_read();
  }
  return d_->main_scan.more();
}

/* ---- single rows ---------------------------------------------------------------------------------------------- */

void Worker::rescan_look(std::vector<RescanRow> &list, bool *wanted_again, const Snapshot &snapshot) {
  std::vector<int64_t> positions, gone;
  for (const RescanRow &item : list)
    positions.push_back(item.position);
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  for (int64_t position : positions) {
    const Found row = table_.find(position, snapshot);
    if (row.version == nullptr || row.version->failed)
      continue;
    WorkerSink *sink = find_sink(row.version->sink);
    d_->blocked_keys.row_seen(sink ? sink->oid : 0, row.version->key_hash, position);
    const RowVerdict verdict = classify(row, RowScan::RESCAN, &sink);
    if (verdict == RowVerdict::STOP) {
      sink->cursor->set_has_backlog(true);
      *wanted_again = true;
    }
    const bool mine = is_mine(sink, shard_of(row.version->key_hash, position));
    for (RescanRow &item : list)
      if (item.position == position) {
        item.fate = !mine ? RescanRow::OTHERS : verdict == RowVerdict::STOP ? RescanRow::KEEP : RescanRow::DONE;
        item.sink = sink ? sink->oid : 0;
        item.key_hash = row.version->key_hash;
      }
  }
  for (const RescanRow &item : list)
    if (item.fate == RescanRow::GONE)
      gone.push_back(item.position);
  const std::vector<DeadLetter> states = look_at_dead_letters(gone, snapshot);
  size_t n = 0;
  std::vector<int64_t> released;
  for (RescanRow &item : list) {
    if (item.fate != RescanRow::GONE)
      continue;
    const DeadLetter state = states[n++];
    if (state == DeadLetter::DEAD_ELSEWHERE)
      item.fate = RescanRow::OTHERS;
    else if (state != DeadLetter::DEAD_HOLDS)
      released.push_back(item.position);
  }
  for (int64_t position : released)
    d_->blocked_keys.release(position);
}

void Worker::claim_locked_rows(const Snapshot &snapshot) {
  LockedRows &rows = d_->locked_rows;
  bool wanted_again = false;
  if (rows.next_moment() > d_->round.now.moment)
    return;
  need(rows.take_due());
  std::vector<RescanRow> list;
  for (int i = 0; i < rows.look_count(); i++)
    list.push_back({rows.looked(i).position, 0, 0});
  rescan_look(list, &wanted_again, snapshot);
  for (size_t i = 0; i < list.size(); i++)
    if (list[i].fate == RescanRow::KEEP)
      rows.keep(static_cast<int>(i), list[i].sink, list[i].key_hash);
}

bool Worker::rescan_claim(const Snapshot &snapshot, bool *more) {
  static constexpr size_t LIMIT = 20; /* small, so that there are pages */
  const RescanPlace after = d_->rescan_cursor.after();
  std::vector<RescanRow> list;
  bool wanted_again = false;

  d_->rescan_cursor.begin_page(snapshot.xmin);
  for (size_t i = 0; i < table_.queue.size(); i++) {
    const QueueEntry &entry = table_.queue[i];
    if (std::pair(entry.xact, entry.position) > std::pair(after.xact, after.position) &&
        table_.sees(snapshot, entry.xmin, entry.xmax))
      list.push_back({entry.position, i, entry.xact});
  }
  std::sort(list.begin(), list.end(), [](const RescanRow &a, const RescanRow &b) {
    return std::tuple(a.xact, a.position, a.entry) < std::tuple(b.xact, b.position, b.entry);
  });
  if (list.size() > LIMIT)
    list.resize(LIMIT);
  const bool full = list.size() == LIMIT;
  rescan_look(list, &wanted_again, snapshot);
  for (const RescanRow &item : list)
    if (item.fate == RescanRow::KEEP)
      d_->rescan_cursor.row_kept(item.xact);
  if (full)
    d_->rescan_cursor.end_page({list.back().xact, list.back().position});
  else
    d_->rescan_cursor.end_pass();
  int n_done = 0;
  for (const RescanRow &item : list)
    if (item.fate == RescanRow::GONE || item.fate == RescanRow::DONE) {
      QueueEntry &entry = table_.queue[item.entry];
      if (!table_.is_running(entry.xmax))
        entry.xmax = xid();
      n_done++;
    }
  *more |= full && n_done > 0;
  return wanted_again || full;
}

bool Worker::check_blockers(const Snapshot &snapshot) {
  BlockerCheck &check = d_->blocker_check;
  const Moment now = d_->round.now.moment;
  if (!check.wanted(d_->blocked_keys, now, world_.settings().poll_ms))
    return false;
  check.begin(now);
  const std::span<const int64_t> asked = d_->blocked_keys.check_begin();
  const std::vector<int64_t> blockers(asked.begin(), asked.end());
  if (blockers.empty())
    return check.end(d_->blocked_keys, false);
  for (int64_t position : blockers) {
    const Found row = table_.find(position, snapshot);
    if (row.version && !row.version->failed && find_sink(row.version->sink))
      d_->blocked_keys.check_seen(row.version->sink, row.version->key_hash, position);
  }
  const std::span<const int64_t> left = d_->blocked_keys.check_unseen();
  const std::vector<int64_t> unseen(left.begin(), left.end());
  const std::vector<DeadLetter> states = look_at_dead_letters(unseen, snapshot);
  bool released = false;
  for (size_t i = 0; i < unseen.size(); i++)
    if (states[i] != DeadLetter::DEAD_HOLDS && d_->in_flight.find(unseen[i]) == nullptr) {
      d_->blocked_keys.release(unseen[i]);
      released = true;
    }
  return check.end(d_->blocked_keys, released);
}

/* ---- dead letters --------------------------------------------------------------------------------------------- */

DeadLetter Worker::note_dead_letter(const Version &row, int64_t position) {
  WorkerSink *sink;
  d_->dead_letter_keys.note(row.key_hash);
  if (!is_ours(row, position, &sink))
    return is_mine(sink, shard_of(row.key_hash, position)) ? DeadLetter::DEAD : DeadLetter::DEAD_ELSEWHERE;
  if (!sink->rule.hold || row.key_hash == 0)
    return DeadLetter::DEAD;
  need(d_->block_key(sink->oid, row.key_hash, position));
  return DeadLetter::DEAD_HOLDS;
}

void Worker::read_dead_letters() {
  const Snapshot snapshot = latest();
  dead_stale_ = false;
  for (int64_t position : table_.special()) {
    const Found row = table_.find(position, snapshot);
    if (row.version && row.version->failed)
      note_dead_letter(*row.version, position);
  }
  for (int64_t position : table_.special()) {
    const Found row = table_.find(position, snapshot);
    WorkerSink *sink;
    if (row.version == nullptr || row.version->failed || row.version->redrive == Redrive::NOT)
      continue;
    d_->dead_letter_keys.note(row.version->key_hash);
    if (is_ours(*row.version, position, &sink) && sink->rule.ordered)
      need(d_->redriven_row(sink->oid, row.version->key_hash, position, row.version->blocked_by));
  }
}

std::vector<DeadLetter> Worker::look_at_dead_letters(const std::vector<int64_t> &positions,
                                                     const Snapshot &snapshot) {
  std::vector<DeadLetter> states(positions.size(), DeadLetter::NOT_DEAD);
  for (size_t i = 0; i < positions.size(); i++) {
    const Found row = table_.find(positions[i], snapshot);
    if (row.version == nullptr || !row.version->failed)
      continue;
    d_->blocked_keys.row_seen(row.version->sink, row.version->key_hash, positions[i]);
    states[i] = note_dead_letter(*row.version, positions[i]);
  }
  return states;
}

DrainStops Worker::dead_letter_stops(const WorkerSink &sink, uint64_t key_hash, const Snapshot &snapshot) {
  DrainStops stops;
  for (int64_t position : table_.special()) {
    const Found row = table_.find(position, snapshot);
    WorkerSink *its;
    if (row.version == nullptr || row.version->sink != sink.oid || row.version->key_hash != key_hash ||
        !is_ours(*row.version, position, &its))
      continue;
    if (row.version->failed)
      stops.dead = std::min(stops.dead, position);
    else if (row.version->redrive != Redrive::NOT && row.version->blocked_by == 0 &&
             row.version->available_at == WALL_TIME_BEGIN && d_->in_flight.find(position) == nullptr)
      stops.redriven = std::min(stops.redriven, position);
  }
  for (InFlightEvent *event = d_->in_flight.first_ended(); event; event = event->next)
    if (event->outcome == Outcome::REJECTED && event->sink == &sink.events && event->key_hash == key_hash)
      stops.dead = std::min(stops.dead, event->position);
  return stops;
}

}  // namespace simulate
