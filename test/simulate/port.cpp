/* port.cpp: the table as the port of a round (dispatch/round/claim_port.h and record_port.h): which rows a read
 * finds, and how rows are locked and marked. The order of the steps is that of the extension's worker. */
#include <algorithm>

#include "test/simulate/worker.h"

namespace simulate {

using namespace dispatch;

void Worker::at(const char *) {
  pass(true);
}

/* events_in_flight.cpp: the WAL of recordings is flushed before they fill half of outbox.max_in_flight. */
void Worker::settle_unflushed(int max_events) {
  Unflushed &unflushed = d_->in_flight.unflushed;
  if (unflushed.events() == 0)
    return;
  if (const uint64_t lsn = unflushed.flush_wanted(max_events); lsn != 0)
    table_.flush(lsn);
  unflushed.safe(table_.flushed());
}

int Worker::free_events() {
  settle_unflushed(world_.settings().max_in_flight);
  return d_->in_flight.free_events(world_.settings().max_in_flight, BYTES_MAX);
}

int64_t Worker::free_bytes() {
  return d_->in_flight.free_bytes(BYTES_MAX);
}

/* ---- transactions --------------------------------------------------------------------------------------------- */

void Worker::take_snapshot() {
  snapshot_ = latest();
}

/* Others act between the snapshot and the reads. */
void Worker::check_sinks() {
  pass(true);
}

TransactionSnapshot Worker::transactions() {
  running_.clear();
  for (Xid xid : snapshot_->running)
    running_.push_back(xid_with_epoch(static_cast<uint32_t>(xid), snapshot_->next));
  return {running_.data(), running_.size(), xid_with_epoch(static_cast<uint32_t>(snapshot_->xmax), snapshot_->next),
          table_.next_xid()};
}

uint64_t Worker::oldest_running() {
  return snapshot_->xmin;
}

void Worker::find_late(std::span<const uint64_t> transactions, int64_t upto,
                       FunctionRef<void, uint64_t, int64_t> visit) {
  for (Xid xid : transactions)
    for (const Found &row : find({.rows = RowsOf::LATE, .xid = xid, .upto = upto, .limit = 1}))
      visit(xid, row.position);
}

bool Worker::any_news(RescanPlace rescanned, int64_t cursor, std::span<const uint64_t> ended) {
  dispatch::QueueEntry entry;
  if (read_queue(rescanned, {&entry, 1}) > 0 ||
      (cursor != INT64_MAX && !find({.rows = RowsOf::MAIN, .after = cursor, .limit = 1}).empty()))
    return true;
  return std::any_of(ended.begin(), ended.end(), [&](Xid xid) {
    return !find({.rows = RowsOf::LATE, .xid = xid, .upto = cursor, .limit = 1}).empty();
  });
}

/* ---- reads ---------------------------------------------------------------------------------------------------- */

static bool is_redriven(const Version &row) {
  return !row.failed && row.redrive != Redrive::NOT;
}

static bool is_troubled(const Version &row) {
  return !row.failed && (row.tried_at != WALL_TIME_NEVER || row.redrive != Redrive::NOT);
}

static bool has_time(const Version &row) {
  return !row.failed && row.available_at != WALL_TIME_BEGIN && row.blocked_by == 0;
}

static bool is_of_key(const Version &row, const Read &read) {
  return row.sink == read.sink->id() && row.key_hash == read.key_hash;
}

/* Is it one of the rows that the read is for, whatever its position and time? */
static bool is_read(const Version &row, const Read &read) {
  switch (read.rows) {
  case RowsOf::MAIN:
  case RowsOf::POSITIONS:
    return !row.failed;
  case RowsOf::LATE:
    return !row.failed && row.xact == read.xid;
  case RowsOf::MARKED:
    return !row.failed && row.blocked_by == read.group;
  case RowsOf::DUE:
  case RowsOf::WAITING:
    return has_time(row) && row.sink == read.sink->id();
  case RowsOf::TROUBLED:
    return is_troubled(row) && row.sink == read.sink->id() && row.key_hash != 0;
  case RowsOf::TROUBLED_OF_KEY:
    return is_troubled(row) && is_of_key(row, read);
  case RowsOf::GROUPS:
    return !row.failed && row.blocked_by != 0;
  case RowsOf::FIRST_OF_SINK:
    return !row.failed && row.available_at == WALL_TIME_BEGIN && row.sink == read.sink->id();
  case RowsOf::FIRST_UNROUTED:
    return !row.failed && row.sink == 0;
  case RowsOf::FIRST_MARKED_WITH_TIME:
    return !row.failed && row.blocked_by != 0 && row.available_at != WALL_TIME_BEGIN;
  case RowsOf::LAST:
    return !row.failed;
  case RowsOf::REDRIVEN_OF_KEY:
    return is_redriven(row) && is_of_key(row, read) && row.blocked_by == 0 && row.available_at == WALL_TIME_BEGIN;
  case RowsOf::DEAD:
  case RowsOf::DEAD_POSITIONS:
    return row.failed;
  case RowsOf::DEAD_OF_KEY:
    return row.failed && is_of_key(row, read);
  }
  return false;
}

/* The positions at which the read looks, in order. */
std::vector<int64_t> Worker::candidates(const Read &read) const {
  std::vector<int64_t> positions;
  switch (read.rows) {
  case RowsOf::MAIN:
    for (int64_t at = std::max(read.after + 1, table_.first_alive()); at <= table_.last_position(); at++)
      positions.push_back(at);
    break;
  case RowsOf::FIRST_OF_SINK:
  case RowsOf::FIRST_UNROUTED:
  case RowsOf::FIRST_MARKED_WITH_TIME:
    for (int64_t at = table_.first_alive(); at <= table_.last_position(); at++)
      positions.push_back(at);
    break;
  case RowsOf::LAST:
    for (int64_t at = table_.last_position(); at >= table_.first_alive(); at--)
      positions.push_back(at);
    break;
  case RowsOf::LATE:
    for (int64_t at : table_.rows_of(read.xid))
      if (at > read.after && at <= read.upto)
        positions.push_back(at);
    break;
  case RowsOf::MARKED:
  case RowsOf::DEAD:
    positions.assign(table_.special().upper_bound(read.after), table_.special().end());
    break;
  case RowsOf::POSITIONS:
  case RowsOf::DEAD_POSITIONS:
    positions.assign(read.positions.begin(), read.positions.end());
    std::sort(positions.begin(), positions.end());
    positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
    break;
  default:
    positions.assign(table_.special().begin(), table_.special().end());
  }
  return positions;
}

static void keep_rows_after(std::vector<Found> &rows, WallTime time, int64_t position) {
  const auto place_of = [](const Found &row) { return std::pair(row.version->available_at, row.position); };
  std::erase_if(rows, [&](const Found &row) { return place_of(row) <= std::pair(time, position); });
  std::sort(rows.begin(), rows.end(), [&](const Found &a, const Found &b) { return place_of(a) < place_of(b); });
}

static void keep_rows_after_hash(std::vector<Found> &rows, int64_t hash, int64_t position) {
  const auto place_of = [](const Found &row) {
    return std::pair(static_cast<int64_t>(row.version->key_hash), row.position);
  };
  std::erase_if(rows, [&](const Found &row) { return place_of(row) <= std::pair(hash, position); });
  std::sort(rows.begin(), rows.end(), [&](const Found &a, const Found &b) { return place_of(a) < place_of(b); });
}

/* DISTINCT ON (blocked_by) */
static void keep_first_of_groups(std::vector<Found> &rows) {
  std::set<int64_t> groups;
  std::erase_if(rows, [&](const Found &row) { return !groups.insert(row.version->blocked_by).second; });
}

std::vector<Found> Worker::find(const Read &read) {
  const Snapshot snapshot = snapshot_ ? *snapshot_ : latest();
  const bool by_time = read.rows == RowsOf::DUE || read.rows == RowsOf::WAITING;
  const bool by_hash = read.rows == RowsOf::TROUBLED;
  const size_t limit = read.limit > 0 ? read.limit : SIZE_MAX;
  std::vector<Found> rows;
  for (int64_t position : candidates(read)) {
    if (!by_time && !by_hash && rows.size() == limit)
      break;
    const Found row = table_.find(position, snapshot);
    if (row.version && is_read(*row.version, read))
      rows.push_back(row);
  }
  if (by_time)
    keep_rows_after(rows, read.after_time, read.after);
  if (by_hash)
    keep_rows_after_hash(rows, read.after_hash, read.after);
  if (read.rows == RowsOf::GROUPS)
    keep_first_of_groups(rows);
  rows.resize(std::min(rows.size(), limit));
  return rows;
}

ReadRow Worker::read_row(const Found &row) {
  const Version &version = *row.version;
  return {
      .facts =
          {
              .position = row.position,
              .key_hash = version.key_hash,
              .available_at = version.available_at,
              .blocked_by = version.blocked_by,
              .failed = version.tried_at != WALL_TIME_NEVER,
              .redriven = version.redrive != Redrive::NOT,
              .handle = {static_cast<uint32_t>(row.position), row.line, static_cast<uint32_t>(version.xmin), 0},
          },
      .sink = find_sink(version.sink),
      .routed = version.sink != 0,
      .our_origin = true,
      .tried_at = version.tried_at,
      .error = version.error ? std::string_view(version.error) : std::string_view(),
      .of_port = &row,
  };
}

void Worker::read(const Read &read, RowVisitor visit) {
  for (const Found &row : find(read))
    if (!visit(read_row(row)))
      return;
}

int Worker::read_queue(RescanPlace after, std::span<dispatch::QueueEntry> entries) {
  std::vector<dispatch::QueueEntry> all;
  for (uint32_t i = 0; i < table_.queue.size(); i++) {
    const auto &entry = table_.queue[i];
    if (std::pair(entry.xact, entry.position) > std::pair(after.xact, after.position) &&
        table_.sees(*snapshot_, entry.xmin, entry.xmax))
      all.push_back({{entry.xact, entry.position}, {i, 0, 0, 0}});
  }
  std::sort(all.begin(), all.end(), [](const dispatch::QueueEntry &a, const dispatch::QueueEntry &b) {
    return std::tuple(a.place.xact, a.place.position, a.handle.page) <
           std::tuple(b.place.xact, b.place.position, b.handle.page);
  });
  all.resize(std::min(all.size(), entries.size()));
  std::copy(all.begin(), all.end(), entries.begin());
  return static_cast<int>(all.size());
}

void Worker::delete_from_queue(std::span<const RowHandle> entries) {
  for (const RowHandle &handle : entries)
    if (auto &entry = table_.queue[handle.page]; !table_.is_running(entry.xmax))
      entry.xmax = xid();
}

/* ---- rows that were chosen ------------------------------------------------------------------------------------ */

bool Worker::is_to_be_routed(const ReadRow &) {
  return false;
}

bool Worker::routing_is_stuck(int64_t) {
  return false;
}

void Worker::show_batch(WorkerSink &sink) {
  sink.batch_events = sink.batch.data();
  sink.n_batch = static_cast<int>(sink.batch.size());
}

void Worker::empty_batches() {
  for (WorkerSink &sink : sinks_) {
    sink.batch.clear();
    show_batch(sink);
  }
}

InFlightEvent *Worker::claim(const ReadRow &row, const char **) {
  const Version &version = *static_cast<const Found *>(row.of_port)->version;
  const auto bytes = static_cast<uint32_t>(100 + world_.nature(row.facts.position) % 1000);
  WorkerSink &sink = static_cast<WorkerSink &>(*row.sink);
  InFlightEvent *event = d_->in_flight.claim({
      .position = row.facts.position,
      .key_hash = sink.rules.ordered ? version.key_hash : 0,
      .sink = &sink.events,
      .row = row.facts.handle,
      .attempts = version.attempts,
      .failed = row.facts.failed,
      .bytes = bytes,
      .shard = static_cast<uint8_t>(shard_of(version.key_hash, row.facts.position)),
      .blocked_by = version.blocked_by,
      .due_since = 0,
      .late = sink.rules.ordered && version.redrive == Redrive::LATE && version.overtaken_by != 0,
  });
  sink.event_claimed(bytes);
  sink.batch.push_back(event);
  show_batch(sink);
  needed_lsn_ = std::max(needed_lsn_, table_.lsn_of(version.xmin));
  return event;
}

void Worker::close_ranks(RoundSink &round_sink) {
  WorkerSink &sink = static_cast<WorkerSink &>(round_sink);
  std::erase(sink.batch, nullptr);
  show_batch(sink);
}

static RowLocked locked(LockResult result) {
  return result == LockResult::LOCKED ? RowLocked::LOCKED
         : result == LockResult::BUSY ? RowLocked::BUSY
                                      : RowLocked::GONE;
}

void Worker::lock(std::span<const Mark> marks, FunctionRef<void, InFlightEvent **, RowLocked> visit_event,
                  FunctionRef<void, const Mark &, RowLocked, const RowHandle &> visit_mark) {
  for (const Mark &mark : marks) {
    RowHandle handle = mark.row;
    const LockResult result = table_.lock_row(mark.position, &handle.line, xid(), false);
    visit_mark(mark, locked(result), handle);
  }
  for (WorkerSink &sink : sinks_) /* unmodified rows are not locked */
    for (InFlightEvent *&event : sink.batch) {
      uint16_t line = event->row.line;
      if (!table_.is_unmodified(event->position, line))
        visit_event(&event, locked(table_.lock_row(event->position, &line, xid(), false)));
    }
}

void Worker::write_marks(std::span<const MarkToWrite> marks) {
  for (const MarkToWrite &mark : marks)
    if (Version *version = table_.update(mark.handle.page, xid())) {
      version->blocked_by = mark.group;
      world_.log(mark.handle.page, "worker %d marks it: group %lld", index_, static_cast<long long>(mark.group));
    }
}

/* ---- logs ----------------------------------------------------------------------------------------------------- */

void Worker::row_decided(const ReadRow &row, const RowDecision &decision) {
  world_.log(row.facts.position, "worker %d classifies it: verdict %d, %s (%lld)", index_,
             static_cast<int>(decision.verdict), decision.reason ? decision.reason : "claimed",
             static_cast<long long>(decision.blocker));
}

void Worker::event_returned(const InFlightEvent &event, const char *reason) {
  world_.log(event.position, "worker %d takes it back%s%s", index_, reason ? ": " : "", reason ? reason : "");
}

void Worker::returned_event_blocked(const Mark &mark, int64_t blocker) {
  world_.log(mark.position, "worker %d is to mark it: %lld blocks its key", index_, static_cast<long long>(blocker));
}

}  // namespace simulate
