/*
 * worker.h: a worker of the extension without its server. It runs the loop and the rounds of src/dispatch/round. The
 * port of the loop is in worker.cpp, and the table is that of the rounds (port.cpp, record.cpp). sinks.cpp stands for
 * server/sinks/worker_sinks.cpp and shard_handoff.cpp.
 */
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "dispatch/dispatch.h"
#include "dispatch/round/loop.h"
#include "dispatch/round/record_round.h"
#include "test/simulate/library.h"
#include "test/simulate/world.h"

namespace simulate {

struct Crashed {};
struct Failed {
  bool of_rows;
};

inline constexpr int64_t BYTES_MAX = 1 << 20; /* in flight */

enum class SinkState : uint8_t { OPEN, CLOSING, CLOSED, STOPPING, STOPPED };

struct WorkerSink : dispatch::RoundSink {
  SinkState state = SinkState::CLOSED;
  uint64_t fingerprint = 0;
  SinkStatus status;
  std::vector<dispatch::InFlightEvent *> batch; /* batch_events */

  WorkerSink() : RoundSink() {}
  void change_state(SinkState next) {
    state = next;
    stopped = next == SinkState::STOPPING || next == SinkState::STOPPED;
  }
};

class Worker final : private dispatch::ClaimPort, private dispatch::RecordPort, private dispatch::LoopPort {
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
  void check_watermarks();
  void check_mark(int64_t at);
  Xid xid();
  Snapshot latest();

  void between(const char *place) override;
  void signal(const char *) override {}
  int64_t poll_ms() override;
  bool ask_to_be_woken() override;
  void wakes_by_itself() override;
  bool rescan_requested() override;
  dispatch::Fault run(dispatch::Now now, bool claims, const dispatch::Task &task,
                      dispatch::FunctionRef<void> transaction) override;
  void begin(dispatch::Task first) override;
  void commit() override;
  void record(dispatch::Now now) override;
  bool recorded(dispatch::Now now) override;
  bool has_news() override;
  bool claim(dispatch::Now now, bool *rescan) override;
  void flush() override;
  bool recording_rolled_back(dispatch::Now now, bool of_recording, bool of_rows) override;
  void rolled_back(dispatch::Fault fault, dispatch::Task failed) override;
  dispatch::ClaimRound claim_round() override { return claims_; }
  dispatch::Moment pause_end(dispatch::Task task) override { return pauses_[static_cast<int>(task)]; }
  void succeeded(dispatch::Task task) override;
  bool has_errors() override;
  void collect(dispatch::Now now) override;
  bool is_circuit_open(const dispatch::RoundSink &sink) override;
  bool is_ready(const dispatch::RoundSink &sink) override;
  dispatch::SinkCondition condition_of(const dispatch::RoundSink &sink) override;
  int submit(dispatch::RoundSink &sink, bool with_gaps) override;
  dispatch::Moment moment() override { return world_.now().moment; }
  bool is_full() override;
  uint64_t lsn_to_confirm() override;
  bool is_confirmed(uint64_t lsn) override;
  void standbys_missing(uint64_t) override {}
  void standbys_are_back() override {}
  dispatch::Moment next_of_sinks(dispatch::Now now) override;
  dispatch::Moment next_of_shards() override;
  dispatch::Moment next_task() override { return dispatch::MOMENT_NEVER; }
  dispatch::Moment next_log_line() override { return dispatch::MOMENT_NEVER; }
  int64_t idle_timeout_ms() override;
  bool slots_are_scarce() override { return false; }
  bool is_busy() override;
  void stays() override {}
  bool exits(dispatch::Moment until, dispatch::WallTime due) override;

  /* sinks.cpp */
  void reload_sinks();
  void refresh_sinks(dispatch::Now now) override;
  void close_sink(WorkerSink &sink, SinkState closed);
  WorkerSink *find_sink(SinkId id) { return id == 0 || id > sinks_.size() ? nullptr : &sinks_[id - 1]; }
  static WorkerSink *sink_of(const dispatch::InFlightEvent *event) {
    return static_cast<WorkerSink *>(dispatch::round_sink_of(event));
  }
  dispatch::ShardSet draining_anywhere(SinkId sink) const;
  bool follow_shards(dispatch::Moment now);
  void publish_shards();

  /* port.cpp */
  void at(const char *place) override;
  int free_events() override;
  int64_t free_bytes() override;
  void take_snapshot() override;
  void check_sinks() override;
  dispatch::TransactionSnapshot transactions() override;
  uint64_t oldest_running() override;
  void read(const dispatch::Read &read, dispatch::RowVisitor visit) override;
  void find_late(std::span<const uint64_t> transactions, int64_t upto,
                 dispatch::FunctionRef<void, uint64_t, int64_t> visit) override;
  int read_queue(dispatch::RescanPlace after, std::span<dispatch::QueueEntry> entries) override;
  void delete_from_queue(std::span<const dispatch::RowHandle> entries) override;
  bool any_news(dispatch::RescanPlace rescanned, int64_t cursor, std::span<const uint64_t> ended) override;
  bool is_to_be_routed(const dispatch::ReadRow &row) override;
  bool routing_is_stuck(int64_t position) override;
  dispatch::InFlightEvent *claim(const dispatch::ReadRow &row, const char **reason) override;
  void close_ranks(dispatch::RoundSink &sink) override;
  void lock(std::span<const dispatch::Mark> marks,
            dispatch::FunctionRef<void, dispatch::InFlightEvent **, dispatch::RowLocked> visit_event,
            dispatch::FunctionRef<void, const dispatch::Mark &, dispatch::RowLocked, const dispatch::RowHandle &>
                visit_mark) override;
  void write_marks(std::span<const dispatch::MarkToWrite> marks) override;
  void row_decided(const dispatch::ReadRow &row, const dispatch::RowDecision &decision) override;
  void event_returned(const dispatch::InFlightEvent &event, const char *reason) override;
  void returned_event_blocked(const dispatch::Mark &mark, int64_t blocker) override;

  std::vector<int64_t> candidates(const dispatch::Read &read) const;
  std::vector<Found> find(const dispatch::Read &read);
  dispatch::ReadRow read_row(const Found &row);
  static void show_batch(WorkerSink &sink);
  void empty_batches();
  void settle_unflushed(int max_events);

  /* record.cpp */
  dispatch::Retention retention_of(const dispatch::InFlightEvent &event) override;
  int64_t retry_delay_ms(const dispatch::InFlightEvent &event) override;
  void flush_recordings() override;
  size_t delete_unmodified(std::span<dispatch::InFlightEvent *> events) override;
  void
  lock_ended(std::span<dispatch::InFlightEvent *const> events,
             dispatch::FunctionRef<void, dispatch::InFlightEvent *, dispatch::FoundRow, const dispatch::RowHandle &>
                 visit) override;
  void write(dispatch::Disposition disposition, std::span<const dispatch::RowToWrite> rows) override;
  void find_earlier(std::span<const dispatch::SentKey> keys,
                    dispatch::FunctionRef<void, uint32_t, const dispatch::EarlierRow &> visit) override;
  void lock_earlier(std::span<dispatch::OvertakenRow> dead_letters,
                    std::span<dispatch::OvertakenRow> pending) override;
  void write_overtaken(dispatch::EarlierRowAction action, std::span<const dispatch::OvertakenRow> rows) override;

  void fail_if_bad(int64_t position, SinkId sink);
  void remove_sent(const dispatch::InFlightEvent *event);
  void to_dead_letters(int64_t position, SinkId sink, int64_t overtaken_by, bool spent, const char *error);
  void reschedule(const dispatch::RowToWrite &row);

  World &world_;
  Table &table_;
  int index_;
  Incarnation pid_;
  Library library_;
  std::unique_ptr<dispatch::Dispatch> d_;
  dispatch::ClaimRound claims_;
  dispatch::RecordRound records_;
  dispatch::Loop loop_;
  std::vector<WorkerSink> sinks_;
  Xid xid_ = NO_XID;
  uint64_t needed_lsn_ = 0;
  uint64_t last_lsn_ = 0;
  std::optional<Snapshot> snapshot_; /* of the running round of claiming */
  std::vector<uint64_t> running_;
  std::vector<int64_t> recorded_; /* as delivered, by the running transaction */
  int watermark_checks_ = 0;

  bool is_dead_ = false, wants_to_exit_ = false;
  dispatch::Moment away_until_ = dispatch::MOMENT_NONE;
  dispatch::Moment confirmed_at_ = dispatch::MOMENT_NONE; /* by the standby */
  dispatch::Moment pauses_[2] = {};                       /* of each task */
  bool has_failed_[2] = {};
};

}  // namespace simulate
