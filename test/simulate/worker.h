/*
 * worker.h: a worker of the extension without its server: the calls of src/server to src/dispatch, in the same order.
 * worker.cpp stands for server/worker/worker.cpp, submit.cpp and completions.cpp; sinks.cpp for
 * server/sinks/worker_sinks.cpp and shard_handoff.cpp; claim.cpp for server/claim/claim.cpp and claim_lock.cpp;
 * scans.cpp for server/claim/scans.cpp, rescan.cpp, locked_rows.cpp, late_commits.cpp, early_retry.cpp and
 * server/inflight/dead_letters.cpp; record.cpp for server/record/.
 */
#pragma once

#include <memory>
#include <vector>

#include "dispatch/classify_row.h"
#include "dispatch/dispatch.h"
#include "dispatch/draining.h"
#include "dispatch/sink_scan.h"
#include "dispatch/sink_share.h"
#include "test/simulate/library.h"
#include "test/simulate/world.h"

namespace simulate {

struct Crashed {};
struct Failed {
  bool of_rows;
};

enum class SinkState : uint8_t { OPEN, CLOSING, CLOSED, STOPPING, STOPPED };

struct WorkerSink {
  SinkId oid = 0;
  SinkState state = SinkState::CLOSED;
  uint64_t fingerprint = 0;
  SinkRule rule;
  dispatch::SinkShards shards = {};
  dispatch::SinkInFlight events = {};
  dispatch::SinkCursor *cursor = nullptr;
  int in_flight = 0, unrecorded = 0, left = 0, left_alone = 0;
  int64_t bytes_in_flight = 0;
  SinkStatus status;
  std::vector<dispatch::InFlightEvent *> batch;

  bool is_stopped() const { return state == SinkState::STOPPING || state == SinkState::STOPPED; }
};

/* A row that is read by its position, and what became of it (server/claim/rescan.h). */
struct RescanRow {
  int64_t position;
  size_t entry; /* in the queue */
  Xid xact;
  enum { GONE, KEEP, OTHERS, DONE } fate = GONE;
  SinkId sink = 0; /* of a row that is kept, as it is now */
  uint64_t key_hash = 0;
};

enum class DeadLetter : uint8_t { NOT_DEAD, DEAD, DEAD_ELSEWHERE, DEAD_HOLDS };

class Worker {
public:
  Worker(World &world, int index, Incarnation pid);
  ~Worker();

  /* One turn of the loop; returns when to wake up. */
  dispatch::Moment loop();
  bool is_gathering() const { return d_->recording.is_gathering(); }
  Library &library() { return library_; }
  Incarnation pid() const { return pid_; }
  int index() const { return index_; }
  bool wants_to_exit() const { return wants_to_exit_; }
  dispatch::Moment away_until() const { return away_until_; }
  /* Its process ends now, also when it stands in the middle of its loop. */
  void server_died() {
    is_dead_ = true;
    library_.die();
  }
  bool is_dead() const { return is_dead_; }
  void die();

  /* The event is in flight for another sink than its row names. */
  bool has_given_away(int64_t position, SinkId sink) const {
    const dispatch::InFlightEvent *event = d_->in_flight.find(position);
    return event != nullptr && event->sink->id != sink;
  }

  /* What is wrong with its memory when all is quiet; NULL = nothing. */
  const char *leftover() const;
  const char *over_bounds() const;

private:
  /* worker.cpp */
  void pass(bool in_transaction);
  void one_loop();
  bool round_trip(dispatch::Now now, bool record, bool claim);
  bool transact(dispatch::Now now, bool record, bool claim);
  bool any_sink_starved() const;
  bool any_sink_can_claim(WallTime now) const;
  bool may_claim(dispatch::Moment now) const;
  int64_t sleep_time(dispatch::Now clock) const;
  bool is_quiet() const;
  bool should_exit_idle();
  void collect(dispatch::Now now);
  void take(const Answer &answer, dispatch::Now now);
  void discard_suspected_failures();
  int submit_claimed();
  Xid xid();
  Snapshot latest();
  void commit_transaction();

  /* sinks.cpp */
  void reload_sinks();
  void refresh_sinks(dispatch::Now now);
  void close_sink(WorkerSink &sink, SinkState closed);
  WorkerSink *find_sink(SinkId id) { return id == 0 || id > sinks_.size() ? nullptr : &sinks_[id - 1]; }
  WorkerSink *sink_of(const dispatch::InFlightEvent *event) { return find_sink(event->sink->id); }
  dispatch::ShardSet draining_anywhere(SinkId sink) const;
  bool follow_shards(dispatch::Moment now);
  void publish_shards();
  bool any_fresh() const;
  bool is_mine(const WorkerSink *sink, int shard) const;

  /* claim.cpp */
  bool has_news();
  bool claim_events(dispatch::Now now);
  void mark_returned();
  void claim_return(dispatch::InFlightEvent *event);
  void claim_give_back();
  void lock_and_mark();
  void prune(WorkerSink &sink);
  void drop_event(dispatch::InFlightEvent *event);
  void read_fresh_shards(const Snapshot &snapshot);
  dispatch::RowVerdict classify(const Found &row, dispatch::RowScan scan, WorkerSink **sink);
  dispatch::RowVerdict classify_at(const Found &row, WallTime available_at, dispatch::RowScan scan,
                                   WorkerSink **sink);
  dispatch::InFlightEvent *claim_row(WorkerSink &sink, const Found &row);
  bool is_ours(const Version &row, int64_t position, WorkerSink **sink);
  void settle_unflushed(int max_events);

  /* scans.cpp */
  std::vector<Xid> ended_transactions(const Snapshot &snapshot);
  dispatch::TransactionSnapshot transactions_of(const Snapshot &snapshot);
  void find_late_commits(const Snapshot &snapshot);
  bool scan_draining(WorkerSink &sink, const Snapshot &snapshot);
  void drain(WorkerSink &sink, uint64_t key_hash, const Snapshot &snapshot);
  void scan_late(WorkerSink &sink, const Snapshot &snapshot);
  bool scan_due(WorkerSink &sink, const Snapshot &snapshot);
  bool scan_early_retry(WorkerSink &sink, const Snapshot &snapshot);
  bool visit(WorkerSink &sink, dispatch::SinkScan &scan, const Found &row, uint64_t drains = 0);
  std::vector<Found> rows_with_time(SinkId sink, WallTime after, int64_t after_position, int limit,
                                    const Snapshot &snapshot);
  void claim_locked_rows(const Snapshot &snapshot);
  bool scan_main(const Snapshot &snapshot);
  void rescan_look(std::vector<RescanRow> &list, bool *wanted_again, const Snapshot &snapshot);
  bool rescan_claim(const Snapshot &snapshot, bool *more);
  bool check_blockers(const Snapshot &snapshot);
  DeadLetter note_dead_letter(const Version &row, int64_t position);
  void read_dead_letters();
  std::vector<DeadLetter> look_at_dead_letters(const std::vector<int64_t> &positions, const Snapshot &snapshot);
  dispatch::DrainStops dead_letter_stops(const WorkerSink &sink, uint64_t key_hash, const Snapshot &snapshot);

  /* record.cpp */
  void record_ended(dispatch::Now now);
  void record_rows(std::vector<dispatch::InFlightEvent *> &events, dispatch::Now now);
  void record_one(dispatch::InFlightEvent *event, dispatch::Disposition disposition, dispatch::Now now);
  dispatch::FoundRow lock_ended(dispatch::InFlightEvent *event);
  void remove_sent(dispatch::InFlightEvent *event);
  void to_dead_letters(int64_t position, WorkerSink &sink, int64_t overtaken_by, bool spent, const char *error);
  void mark_out_of_order(std::vector<dispatch::InFlightEvent *> &sent, dispatch::Moment now);
  bool record_committed();
  bool count_unrecorded();

  static void need(bool done);

  World &world_;
  Table &table_;
  int index_;
  Incarnation pid_;
  Library library_;
  std::unique_ptr<dispatch::Dispatch> d_;
  std::vector<WorkerSink> sinks_;
  Xid xid_ = NO_XID;
  uint64_t needed_lsn_ = 0;
  uint64_t last_lsn_ = 0;
  std::vector<uint64_t> running_;
  std::vector<int64_t> recorded_; /* as delivered, by the running transaction */

  bool claims_wanted_ = true, rescan_wanted_ = true, polls_only_ = false, dead_stale_ = true;
  bool is_dead_ = false, wants_to_exit_ = false, recording_ = false;
  dispatch::Moment polled_at_ = dispatch::MOMENT_NONE, away_until_ = dispatch::MOMENT_NONE;
  dispatch::Moment claim_pause_ = dispatch::MOMENT_NONE, record_pause_ = dispatch::MOMENT_NONE;
  bool claim_failed_ = false, record_failed_ = false;
};

}  // namespace simulate
