/*
 * worker.h: a worker of the extension without its server. It runs the rounds of src/dispatch/round with the table as
 * their port (port.cpp). worker.cpp stands for server/worker/worker.cpp, submit.cpp and completions.cpp; sinks.cpp
 * for server/sinks/worker_sinks.cpp and shard_handoff.cpp; record.cpp for server/record/.
 */
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "dispatch/dispatch.h"
#include "dispatch/round/claim_round.h"
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

class Worker final : private dispatch::ClaimPort, private dispatch::RecordPort {
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
  bool may_claim(dispatch::Moment now) const;
  int64_t sleep_time(dispatch::Now clock);
  bool is_quiet() const;
  bool should_exit_idle();
  void check_watermarks();
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
  static WorkerSink *sink_of(const dispatch::InFlightEvent *event) {
    return static_cast<WorkerSink *>(dispatch::round_sink_of(event));
  }
  dispatch::ShardSet draining_anywhere(SinkId sink) const;
  bool follow_shards(dispatch::Moment now);
  void publish_shards();

  /* port.cpp */
  void at(const char *place) override;
  [[noreturn]] void out_of_memory() override;
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
  void write_overtaken(dispatch::EarlierFate fate, std::span<const dispatch::OvertakenRow> rows) override;

  void fail_if_bad(int64_t position, SinkId sink);
  void remove_sent(const dispatch::InFlightEvent *event);
  void to_dead_letters(int64_t position, SinkId sink, int64_t overtaken_by, bool spent, const char *error);
  void reschedule(const dispatch::RowToWrite &row);

  static void need(bool done);

  World &world_;
  Table &table_;
  int index_;
  Incarnation pid_;
  Library library_;
  std::unique_ptr<dispatch::Dispatch> d_;
  dispatch::ClaimRound claims_;
  dispatch::RecordRound records_;
  std::vector<WorkerSink> sinks_;
  Xid xid_ = NO_XID;
  uint64_t needed_lsn_ = 0;
  uint64_t last_lsn_ = 0;
  std::optional<Snapshot> snapshot_; /* of the running round of claiming */
  std::vector<uint64_t> running_;
  std::vector<int64_t> recorded_; /* as delivered, by the running transaction */
  int watermark_checks_ = 0;

  bool claims_wanted_ = true, rescan_wanted_ = true, polls_only_ = false;
  bool is_dead_ = false, wants_to_exit_ = false, recording_ = false;
  dispatch::Moment polled_at_ = dispatch::MOMENT_NONE, away_until_ = dispatch::MOMENT_NONE;
  dispatch::Moment claim_pause_ = dispatch::MOMENT_NONE, record_pause_ = dispatch::MOMENT_NONE;
  bool claim_failed_ = false, record_failed_ = false;
};

}  // namespace simulate
