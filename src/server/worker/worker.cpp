/*
 * worker.cpp: one event loop that serves all sinks of one database:
 *
 *   wait (latch | engine's descriptor | timer) -> collect completions -> one short transaction: record + claim ->
 *   commit -> submit -> wait
 *
 * No transaction is open and no row is locked while requests run. They run on the engine's threads; this thread only
 * waits on the latch and runs SQL, so it handles signals at once.
 */
#include "server/base/fault_point.h"
#include "server/base/origin.h"
#include "server/base/settings.h"
#include "server/claim/claim.h"
#include "server/claim/low_watermark.h"
#include "server/claim/unrouted.h"
#include "server/event/unreadable.h"
#include "server/inflight/decision_log.h"
#include "server/inflight/events_in_flight.h"
#include "server/inflight/sink_log.h"
#include "server/process/worker_error.h"
#include "server/process/worker_extension.h"
#include "server/process/worker_health.h"
#include "server/process/worker_owner.h"
#include "server/process/worker_slot.h"
#include "server/record/record.h"
#include "server/sinks/dispatcher.h"
#include "server/sinks/shard_handoff.h"
#include "server/sinks/worker_sinks.h"
#include "server/sinks/worker_stops.h"
#include "server/storage/durable.h"
#include "server/storage/owner_sql.h"
#include "server/storage/standby.h"
#include "server/worker/completions.h"
#include "server/worker/exit_when_idle.h"
#include "server/worker/maintenance.h"
#include "server/worker/probe_worker.h"
#include "server/worker/submit.h"
#include "server/worker/worker_sleep.h"
#include "server/worker/worker_start.h"
#include "server/worker/worker_wait.h"

extern "C" {
#include "access/xact.h"
#include "access/xlog.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
}

static const int START_PAUSE_MS = 200;
/* On exit, recordable rows are looked for among those that cannot be recorded for this time at most. */
static const int LAST_RECORDING_MS = 2000;

extern "C" PGDLLEXPORT void outbox_worker_main(Datum argument);

static MemoryContext claim_context = NULL; /* of rounds that claim: the batches, until they are submitted */
static MemoryContext record_context = NULL;
static MemoryContext round_context = NULL; /* the one of the two that the running round uses */

/* The loop's state. */
static bool claims_wanted = true;
static bool rescan_wanted = true;
static Moment polled_at = MOMENT_NONE;
static bool polls_only = false;    /* this round runs only because of outbox.poll_interval */
static bool record_others = false; /* the last recording failed because of its rows: others are tried at once */

/* ---- one round --------------------------------------------------------------------------------------------- */

static volatile WorkerTask task; /* the task of the running transaction */

static void refresh_sinks(Now now) {
  worker_sinks_refresh(now, !unrouted_routing(), submit_is_stalled());
}

static void begin_transaction(void) {
  SetCurrentStatementStartTimestamp();
  StartTransactionCommand();
  worker_lock_extension();
  hold_sink_names(); /* those in the rows of this transaction's snapshots are those of worker_sinks_reload() */
  worker_owner_enter();
  MemoryContextSwitchTo(round_context);
  PushActiveSnapshot(GetTransactionSnapshot());
  if (worker_sinks_reload()) {
    unrouted_look_at_routes();
    maintenance_sinks_changed();
    rescan_wanted = true; /* dead letters of a sink whose on_dead_letter is no longer 'block' release their keys */
  }
}

static void commit_transaction(void) {
  PopActiveSnapshot();
  worker_owner_leave_settings();
  CommitTransactionCommand();
  worker_owner_leave();
  MemoryContextSwitchTo(round_context);
  pgstat_report_stat(false); /* autovacuum needs the statistics */
}

/* Did the claim of this round, or of a sink, end because the worker may hold no more events? */
static bool claim_was_full(bool claim) {
  const dispatch::Round &round = dispatcher().round;

  return dispatcher().places_exhausted || (claim && (round.free_events <= 0 || round.free_bytes <= 0));
}

/* The transaction of a round, and the submit after it. Returns true when more events can be claimed at once. */
static bool transact(Now now, bool record, bool claim) {
  bool more = false;

  task = TASK_CLAIM;
  worker_slot_report_work(record ? "recording deliveries" : "claiming events");
  begin_transaction();
  if (record) {
    task = TASK_RECORD;
    OUTBOX_FAULT_POINT("record.begin");
    record_ended(now);
    OUTBOX_FAULT_POINT("record.before_commit");
    if (claim)
      worker_slot_report_work("claiming events");
    task = claim ? TASK_CLAIM : TASK_RECORD;
  }
  if (claim && !(polls_only && !claim_has_news())) {
    refresh_sinks(now);
    rescan_wanted = rescan_wanted || polls_only;
    more = claim_events(now, &rescan_wanted);
  }
  OUTBOX_FAULT_POINT("round.before_commit");
  commit_transaction();
  if (record) {
    OUTBOX_FAULT_POINT("record.committed");
    const int held = in_flight().count();
    const bool room = record_committed(now);
    OUTBOX_SIGNAL_POINT("record.told");
    more = more || room || (claim_was_full(claim) && in_flight().count() < held); /* there is room now */
    worker_succeeded(TASK_RECORD);
  }
  if (claim) {
    OUTBOX_FAULT_POINT("claim.before_flush");
    durable_flush();
    OUTBOX_FAULT_POINT("claim.before_submit");
    int claimed = submit_claimed();
    OUTBOX_SIGNAL_POINT("submit.before_settle");
    claim_settle();
    dispatcher().linger.claimed(now.moment, claimed, more || dispatcher().sinks.any_starved());
    worker_succeeded(TASK_CLAIM);
  }
  return more;
}

/* A failed transaction loses nothing: the next one records the ended events, and the claimed events are returned. */
static bool round_trip(Now now, bool record_wanted, bool claim) {
  volatile bool more = false;
  const volatile bool record = record_wanted && in_flight().ended() > 0;

  record_others = false;
  round_context = claim ? claim_context : record_context;
  MemoryContextReset(round_context);
  worker_set_cancel_on_sigterm(!ShutdownRequestPending);
  PG_TRY();
  { more = transact(now, record, claim); }
  PG_CATCH();
  {
    OUTBOX_SIGNAL_POINT("round.failed");
    WorkerFault fault = worker_failed(task, now.moment, task == TASK_CLAIM ? unreadable_aborted : NULL);
    unreadable_done();
    MemoryContextSwitchTo(round_context);
    if (record) {
      const char *error = task == TASK_RECORD ? worker_last_error() : NULL;
      record_others = record_rolled_back(now, error, fault != FAULT_OF_SERVER);
      if (record_others)
        worker_succeeded(TASK_RECORD); /* others may succeed, so they are tried without a pause */
    }
    if (claim) {
      claim_give_back();
      rescan_wanted = true;
    }
    const bool of_one_row = fault == FAULT_OF_ONE_ROW;
    if (of_one_row)
      worker_succeeded(TASK_CLAIM); /* the other rows are claimed without a pause */
    more = claim;
    if (task == TASK_CLAIM && (fault == FAULT_OF_ROWS || (of_one_row && !unreadable_has_sink())))
      claim_tell_error(worker_last_error());
    worker_sinks_settings_changed(); /* what the aborted transaction read of the catalog must be read again */
  }
  PG_END_TRY();
  worker_set_cancel_on_sigterm(false);
  return more;
}

/* ---- the loop ---------------------------------------------------------------------------------------------- */

static bool may_claim(Moment now) {
  return now >= dispatcher().linger.until() && !submit_waits() && now >= worker_pause_end(TASK_CLAIM);
}

/* For the log. A string literal. */
static const char *why_told_to_end = "stops on request (SIGTERM)";

static void reload_settings(void) {
  if (!ConfigReloadPending)
    return;
  ConfigReloadPending = false;
  const int64 origin = origin_here();
  ProcessConfigFile(PGC_SIGHUP);
  standby_reread();
  if (origin_here() != origin) { /* a new worker starts with the new origin */
    ShutdownRequestPending = true;
    why_told_to_end = "restarts because outbox.cluster_name has changed";
  }
  worker_sinks_settings_changed();
  claims_wanted = true;
}

static void report_activity(void) {
  worker_slot_report_activity(worker_waits_for_lock()      ? "waiting for a lock"
                              : submit_is_stalled()        ? "waiting for a synchronous standby"
                              : shards_draining()          ? "handing shards over"
                              : in_flight().count() > 0    ? "delivering"
                              : worker_sinks_all().empty() ? "no sink"
                                                           : "waiting for events");
}

/* Outside a transaction, where it is known which events of a shard are claimed when it is handed over. */
static void update_shards(Moment now) {
  if (shards_follow(now))
    claims_wanted = rescan_wanted = true;
}

/* Reads the catalog, and with `first` also the rows that claims start from. Returns false after an error, such as
 * another session's lock. */
static bool read_catalog(bool first) {
  volatile bool done = false;

  worker_set_cancel_on_sigterm(!ShutdownRequestPending);
  PG_TRY();
  {
    begin_transaction();
    if (first)
      claim_init(origin_here());
    commit_transaction();
    done = true;
  }
  PG_CATCH();
  {
    (void)worker_failed(TASK_CLAIM, moment_now(), NULL);
    OUTBOX_SIGNAL_POINT("worker.catalog_failed");
    worker_sinks_settings_changed();
  }
  PG_END_TRY();
  worker_set_cancel_on_sigterm(false);
  return done;
}

/* A probe uses the sink's committed options, so the catalog is read before it begins. */
static void serve_probes(void) {
  probe_poll();
  if (!probe_wanted())
    return;
  round_context = record_context;
  MemoryContextReset(round_context);
  if (read_catalog(false))
    probe_begin();
}

static void one_loop(void) {
  WorkerSlot *slot = worker_slot();
  const Now clock = now_read();
  const Moment now = clock.moment;
  bool lingers = now < dispatcher().linger.until();

  decision_log_begin();
  worker_health_clear();
  worker_slot_refresh(clock);
  /* Set before the snapshot is taken: each later commit sets the latch. */
  if (!lingers && pg_atomic_exchange_u32(&slot->needs_wakeup, 1) == 0)
    claims_wanted = true;
  pg_memory_barrier();
  if (pg_atomic_exchange_u32(&slot->rescan_requested, 0) == 1)
    rescan_wanted = claims_wanted = true;

  OUTBOX_FAULT_POINT("loop.begin");
  completions_collect(clock);
  OUTBOX_FAULT_POINT("loop.collected");
  if (submit_check_standbys(now))
    claims_wanted = true;
  refresh_sinks(clock);
  discard_suspected_failures();
  bool poll = !lingers && moment_is_past(polled_at, now, setting_poll_interval);
  if (poll) /* finds events whose commits woke no worker: a crash in between, sessions without this library */
    polled_at = now;
  bool wanted = claims_wanted || claim_can_go_on(clock.wall) || dispatcher().locked_rows.next_moment() <= now;
  polls_only = poll && !wanted && !rescan_wanted;
  rescan_wanted = rescan_wanted || (poll && !polls_only);
  bool claim = may_claim(now) && (wanted || poll);
  bool record = (claim || dispatcher().recording.is_due(now)) && now >= worker_pause_end(TASK_RECORD);
  bool room = false;
  if (record && (!claim || worker_has_errors() || dispatcher().recording.in_trouble())) {
    room = round_trip(clock, true, false);
    record = false;
  }
  if (claim)
    claims_wanted = round_trip(clock, record, true);
  claims_wanted = claims_wanted || room;
  if (now < dispatcher().linger.until())
    pg_atomic_write_u32(&slot->needs_wakeup, 0); /* 0 counts as a wake-up when the linger time is over */
  if (dispatcher().sent_day.take_missing())
    maintenance_day_missing();
  if (now >= worker_pause_end(TASK_CLAIM))
    maintenance_run(now, slot->index == 0);
  if (!worker_stops_write(now))
    claims_wanted = true;
  if (slot->index == 0)
    serve_probes();
  OUTBOX_FAULT_POINT("shards.before_update");
  update_shards(now);
  low_watermark_publish(now, rescan_wanted);
  OUTBOX_FAULT_POINT("loop.end");
  sink_log_flush(now, false);
  if (maintenance_library_replaced(now)) {
    ShutdownRequestPending = true;
    why_told_to_end = "restarts because the library of a kind of sink was replaced";
  }
  report_activity();
}

/* Is only scheduled work left (dispatch/idle_exit.h)? */
static bool is_quiet(void) {
  return !claims_wanted && !rescan_wanted && in_flight().count() == 0 && !submit_waits() && !shards_draining() &&
         !worker_has_errors() && !dispatcher().recording.in_trouble() && !probe_running();
}

/* For the log line of a round. A string literal. */
static const char *waits_for(Moment now) {
  return now < worker_pause_end(TASK_CLAIM)  ? "the end of the pause after an error"
         : submit_waits()                    ? "a synchronous standby"
         : now < dispatcher().linger.until() ? "more commits"
         : claims_wanted                     ? "nothing"
         : in_flight().count() == 0          ? "a commit"
         : dispatcher().sinks.any_starved()  ? "room in a sink"
                                             : "outcomes";
}

static void wait_for_something(void) {
  const Now clock = now_read();
  const Moment now = clock.moment;
  const long ms = worker_sleep_ms(clock, claims_wanted, polled_at);

  decision_log_round(in_flight().count(), ms, waits_for(now));
  worker_wait(ms, !dispatcher().recording.is_gathering(), in_flight().count() > 0);
  reload_settings();
}

/* Stops the delivery library, whose threads end before the slot is freed, so that no worker takes the shards while
 * requests are still sent. */
[[noreturn]] static void end_worker(void) {
  OUTBOX_FAULT_POINT("end.before_stop");
  sink_log_flush(moment_now(), true);
  worker_stop();
  OUTBOX_FAULT_POINT("end.stopped");
  proc_exit(0); /* the launcher decides whether to start another worker */
}

/* A planned exit should cause no duplicates: waits for events in flight, at most outbox.shutdown_timeout, and records
 * the outcomes. */
[[noreturn]] static void drain_and_end(void) {
  Moment until = moment_after(moment_now(), setting_shutdown_timeout);

  worker_slot_leave();
  OUTBOX_FAULT_POINT("drain.begin");
  worker_slot_report_activity("shutting down");
  submit_return_held();
  /* Sessions may wait for this worker's exit, so it waits at most 200 ms for locks of others. */
  SetConfigOption("lock_timeout", "200ms", PGC_SUSET, PGC_S_OVERRIDE);
  for (;;) {
    Now now = now_read();
    completions_collect(now);
    if (in_flight().count() == in_flight().ended() || now.moment >= until)
      break;
    worker_wait(milliseconds_until(now.moment, until), true, true);
  }
  until = moment_after(moment_now(), LAST_RECORDING_MS);
  int before;
  do {
    before = in_flight().ended();
    if (before > 0)
      (void)round_trip(now_read(), true, false);
  } while (in_flight().ended() < before || (record_others && moment_now() < until));
  end_worker();
}

/* Gives the slot to another database. Events that are being sent end normally, because an endpoint that is slower
 * than slot sharing would get the same events from each worker. No new event is sent. */
[[noreturn]] static void give_slot_away(void) {
  worker_slot_leave();
  OUTBOX_FAULT_POINT("slot.given");
  worker_slot_report_activity("giving its slot to another database");
  submit_return_held();
  worker_sinks_close();
  while (!ShutdownRequestPending && in_flight().count() > in_flight().ended()) {
    worker_wait(1000, true, true);
    Now now = now_read();
    completions_collect(now);
    if (dispatcher().recording.is_due(now.moment))
      (void)round_trip(now, true, false);
  }
  drain_and_end();
}

static void init_worker(const WorkerArguments *arguments) {
  ob_engine *engine = worker_start(arguments);
  dispatcher_init();
  round_context = claim_context = AllocSetContextCreate(TopMemoryContext, "outbox claim", ALLOCSET_DEFAULT_SIZES);
  record_context = AllocSetContextCreate(TopMemoryContext, "outbox recording", ALLOCSET_DEFAULT_SIZES);
  dispatcher().shards.init(arguments->index);
  completions_init(engine);
  worker_wait_init(ob_engine_fd(engine));
  worker_sinks_init(engine, arguments->index);
  probe_worker_init(engine);
  durable_init();
}

/* log_line_prefix names no database for a background worker. */
static void name_database(void *) {
  if (worker_database()[0] != '\0')
    errcontext("outbox worker of database \"%s\"", worker_database());
}

void outbox_worker_main(Datum) {
  WorkerArguments arguments;
  ErrorContextCallback context = {error_context_stack, name_database, NULL};

  error_context_stack = &context;
  memcpy(&arguments, MyBgworkerEntry->bgw_extra, sizeof(arguments));
  worker_health_init(arguments.database);
  init_worker(&arguments);

  while (!ShutdownRequestPending && !read_catalog(true))
    worker_wait(START_PAUSE_MS, false, false);
  worker_slot_run();
  OUTBOX_FAULT_POINT("worker.running");
  update_shards(moment_now());
  while (!ShutdownRequestPending) {
    one_loop();
    if (dispatcher().shards.superfluous() && in_flight().count() == 0 && worker_slot_resign())
      end_worker();
    if (should_exit_idle(now_read(), is_quiet()))
      end_worker();
    if (worker_slot_is_revoked())
      give_slot_away();
    if (!ShutdownRequestPending)
      wait_for_something();
  }
  ereport(LOG,
          (errmsg("outbox worker of database \"%s\" %s", worker_database(), why_told_to_end), errhidecontext(true)));
  drain_and_end();
}
