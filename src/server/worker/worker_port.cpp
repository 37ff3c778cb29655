/*
 * worker_port.cpp: what the steps of the loop are in this server: transactions with the rights of the extension's
 * owner, the latch, the delivery library, the WAL that standbys have confirmed. The order of the steps, and what
 * follows from them, stand in dispatch/round/loop.h.
 */
#include "server/worker/worker_port.h"

#include "server/base/fault_point.h"
#include "server/base/origin.h"
#include "server/base/settings.h"
#include "server/claim/batches.h"
#include "server/claim/claim.h"
#include "server/claim/unrouted.h"
#include "server/enqueue/unrouted_events.h"
#include "server/event/unreadable.h"
#include "server/inflight/events_in_flight.h"
#include "server/inflight/sink_log.h"
#include "server/process/worker_error.h"
#include "server/process/worker_extension.h"
#include "server/process/worker_owner.h"
#include "server/process/worker_slot.h"
#include "server/record/record.h"
#include "server/sinks/careful.h"
#include "server/sinks/failing_port.h"
#include "server/sinks/shard_handoff.h"
#include "server/sinks/worker_sinks.h"
#include "server/storage/durable.h"
#include "server/storage/owner_sql.h"
#include "server/storage/standby.h"
#include "server/worker/completions.h"
#include "server/worker/maintenance.h"
#include "server/worker/probe_worker.h"

extern "C" {
#include "access/xact.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "replication/syncrep.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
}

using dispatch::Fault;
using dispatch::RoundSink;
using dispatch::Task;

class WorkerPort final : public FailingPort<dispatch::LoopPort> {
public:
  void init();

  void between(const char *place) override;
  void signal(const char *place) override;

  int64_t poll_ms() override { return setting_poll_interval; }
  bool ask_to_be_woken() override;
  void wakes_by_itself() override;
  bool rescan_requested() override;

  Fault run(Now now, bool claims, const Task &task, dispatch::FunctionRef<void> transaction) override;
  void begin(Task first) override;
  void commit() override;
  void record(Now now) override;
  bool recorded(Now now) override { return record_committed(now); }
  bool has_news() override { return claim_has_news(); }
  bool claim(Now now, bool *rescan) override;
  void flush() override { durable_flush(); }
  bool recording_rolled_back(Now now, bool of_recording, bool of_rows) override;
  void rolled_back(Fault fault, Task failed) override;
  dispatch::ClaimRound claim_round() override { return ::claim_round(); }

  Moment pause_end(Task task) override { return worker_pause_end(task_of(task)); }
  void succeeded(Task task) override { worker_succeeded(task_of(task)); }
  bool has_errors() override { return worker_has_errors(); }

  void collect(Now now) override { completions_collect(now); }
  void refresh_sinks(Now now) override;
  bool is_circuit_open(const RoundSink &sink) override;
  bool is_ready(const RoundSink &sink) override;
  dispatch::SinkCondition condition_of(const RoundSink &sink) override;
  int submit(RoundSink &sink, bool with_gaps) override;
  Moment moment() override { return moment_now(); }
  bool is_full() override { return in_flight_is_full(); }

  uint64_t lsn_to_confirm() override { return standby_target(); }
  bool is_confirmed(uint64_t lsn) override { return !standby_required() || standby_has(lsn); }
  void standbys_missing(uint64_t lsn) override;
  void standbys_are_back() override;

  Moment next_of_sinks(Now now) override { return worker_sinks_next_moment(now.moment); }
  Moment next_of_shards() override { return shards_next_moment(); }
  Moment next_task() override { return maintenance_next_moment(); }
  Moment next_log_line() override { return sink_log_next_moment(); }
  int64_t idle_timeout_ms() override { return setting_worker_idle_timeout; }
  bool slots_are_scarce() override { return worker_slots_are_scarce(); }
  bool is_busy() override;
  void stays() override { worker_slot_run(); }
  bool exits(Moment until, dispatch::WallTime due) override { return worker_slot_exit_idle(until, due); }

private:
  static WorkerTask task_of(Task task) { return task == Task::RECORD ? TASK_RECORD : TASK_CLAIM; }

  MemoryContext claim_context_ = NULL; /* of rounds that claim: the batches, until they are submitted */
  MemoryContext record_context_ = NULL;
  MemoryContext round_context_ = NULL; /* the one of the two that the running round uses */
};

static WorkerPort &port(void) {
  static WorkerPort the_port;

  return the_port;
}

dispatch::Loop &worker_loop(void) {
  static dispatch::Loop the_loop(dispatcher(), port());

  return the_loop;
}

void WorkerPort::init() {
  claim_context_ = AllocSetContextCreate(TopMemoryContext, "outbox claim", ALLOCSET_DEFAULT_SIZES);
  record_context_ = AllocSetContextCreate(TopMemoryContext, "outbox recording", ALLOCSET_DEFAULT_SIZES);
  round_context_ = claim_context_;
}

void worker_port_init(void) {
  port().init();
}

/* ---- places at which tests let the worker fail ---------------------------------------------------------- */

void WorkerPort::between(const char *place) {
  OUTBOX_FAULT_POINT(place);
  (void)place;
}

void WorkerPort::signal(const char *place) {
  OUTBOX_SIGNAL_POINT(place);
  (void)place;
}

/* ---- what wakes the worker ------------------------------------------------------------------------------ */

bool WorkerPort::ask_to_be_woken() {
  const bool was_woken = pg_atomic_exchange_u32(&worker_slot()->needs_wakeup, 1) == 0;

  pg_memory_barrier();
  return was_woken;
}

void WorkerPort::wakes_by_itself() {
  pg_atomic_write_u32(&worker_slot()->needs_wakeup, 0); /* 0 counts as a wake-up when the linger time is over */
}

bool WorkerPort::rescan_requested() {
  pg_memory_barrier();
  return pg_atomic_exchange_u32(&worker_slot()->rescan_requested, 0) == 1;
}

/* ---- transactions --------------------------------------------------------------------------------------- */

void WorkerPort::begin(Task first) {
  worker_slot_report_work(first == Task::RECORD ? "recording deliveries" : "claiming events");
  SetCurrentStatementStartTimestamp();
  StartTransactionCommand();
  worker_lock_extension();
  hold_sink_names(); /* those in the rows of this transaction's snapshots are those of worker_sinks_reload() */
  worker_owner_enter();
  MemoryContextSwitchTo(round_context_);
  PushActiveSnapshot(GetTransactionSnapshot());
  if (worker_sinks_reload()) {
    unrouted_look_at_routes();
    maintenance_sinks_changed();
    /* dead letters of a sink whose on_dead_letter is no longer 'block' release their keys */
    worker_loop().want_rescan();
  }
}

void WorkerPort::commit() {
  PopActiveSnapshot();
  worker_owner_leave_settings();
  CommitTransactionCommand();
  worker_owner_leave();
  MemoryContextSwitchTo(round_context_);
  pgstat_report_stat(false); /* autovacuum needs the statistics */
}

Fault WorkerPort::run(Now now, bool claims, const Task &task, dispatch::FunctionRef<void> transaction) {
  volatile Fault fault = Fault::NONE;

  round_context_ = claims ? claim_context_ : record_context_;
  MemoryContextReset(round_context_);
  worker_set_cancel_on_sigterm(!ShutdownRequestPending);
  PG_TRY();
  { transaction(); }
  PG_CATCH();
  {
    fault = worker_failed(task_of(task), now.moment, task == Task::CLAIM ? unreadable_aborted : NULL);
    unreadable_done();
    MemoryContextSwitchTo(round_context_);
  }
  PG_END_TRY();
  if (fault == Fault::NONE)
    worker_set_cancel_on_sigterm(false);
  return fault;
}

void WorkerPort::record(Now now) {
  record_ended(now);
}

bool WorkerPort::claim(Now now, bool *rescan) {
  worker_slot_report_work("claiming events");
  return claim_events(now, rescan);
}

bool WorkerPort::recording_rolled_back(Now now, bool of_recording, bool of_rows) {
  return record_rolled_back(now, of_recording ? worker_last_error() : NULL, of_rows);
}

void WorkerPort::rolled_back(Fault fault, Task failed) {
  if (failed == Task::CLAIM && (fault == Fault::OF_ROWS || (fault == Fault::OF_ONE_ROW && !unreadable_has_sink())))
    claim_tell_error(worker_last_error());
  worker_sinks_settings_changed(); /* what the aborted transaction read of the catalog must be read again */
  worker_set_cancel_on_sigterm(false);
}

bool worker_read_catalog(bool first) {
  const Task task = Task::CLAIM;
  const Fault fault = port().run(now_read(), false, task, [&] {
    port().begin(task);
    if (first)
      claim_init(origin_here());
    port().commit();
  });

  if (fault == Fault::NONE)
    return true;
  OUTBOX_SIGNAL_POINT("worker.catalog_failed");
  worker_sinks_settings_changed();
  worker_set_cancel_on_sigterm(false);
  return false;
}

/* ---- sinks ---------------------------------------------------------------------------------------------- */

static WorkerSink &sink_of(RoundSink &sink) {
  return static_cast<WorkerSink &>(sink);
}

static const WorkerSink &sink_of(const RoundSink &sink) {
  return static_cast<const WorkerSink &>(sink);
}

void WorkerPort::refresh_sinks(Now now) {
  worker_sinks_refresh(now, !unrouted_routing(), worker_loop().is_stalled());
}

bool WorkerPort::is_circuit_open(const RoundSink &sink) {
  return sink_of(sink).status.state == OB_SINK_CIRCUIT_OPEN;
}

bool WorkerPort::is_ready(const RoundSink &sink) {
  return worker_sink_is_ready(&sink_of(sink));
}

dispatch::SinkCondition WorkerPort::condition_of(const RoundSink &of) {
  const WorkerSink &sink = sink_of(of);

  if (sink.state == SINK_STOPPED)
    return dispatch::SinkCondition::STOPPED;
  return sink.state == SINK_OPEN && sink.status.state == OB_SINK_OK && sink.status.paused_ms <= 0
             ? dispatch::SinkCondition::HEALTHY
             : dispatch::SinkCondition::TROUBLED;
}

int WorkerPort::submit(RoundSink &of, bool with_gaps) {
  Assert(!IsTransactionState());
  WorkerSink &sink = sink_of(of);

  if (with_gaps)
    batch_close_ranks(&sink);
  for (int i = 0; i < sink.n_batch; i++)
    sink.batch[i].alone = worker_loop().is_blocker(sink.batch_events[i]);
  if (sink.n_batch == 0 || sink.state != SINK_OPEN)
    return 0;
  const int n = careful().may_hand_over(&sink, moment_now());
  const int taken = n > 0 ? (int)sink.handle->kind->submit(sink.handle, sink.batch, n) : 0;
  careful().handed_over(taken);
  return taken;
}

/* ---- synchronous standbys ------------------------------------------------------------------------------- */

void WorkerPort::standbys_missing(uint64_t lsn) {
  ereport(
      WARNING,
      (errmsg("outbox waits for a synchronous standby"),
       errdetail("Events wait until the standbys of synchronous_standby_names (%s) have confirmed WAL up to %X/%X.",
                 SyncRepStandbyNames, (uint32)(lsn >> 32), (uint32)lsn),
       errhint("Is another server the primary now? Then stop this one. Otherwise start a standby, change "
               "synchronous_standby_names, or turn outbox.wait_for_standbys off.")));
}

void WorkerPort::standbys_are_back() {
  ereport(LOG, (errmsg("outbox no longer waits for a synchronous standby")));
}

/* ---- exit ----------------------------------------------------------------------------------------------- */

bool WorkerPort::is_busy() {
  return shards_draining() || probe_running() || unrouted_wanted() || unrouted_locked() > 0;
}
