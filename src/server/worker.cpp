/*
 * worker.cpp: one event loop that serves all sinks of one database:
 *
 *   wait (latch | engine's descriptor | timer) -> collect completions -> one short transaction: record + claim ->
 *   commit -> submit -> wait
 *
 * No transaction is open and no row locked while the network works: the network works on the engine's threads, and
 * this thread only waits on the latch and runs SQL, so it answers signals at once.
 */
#include "worker.h"

#include "claim.h"
#include "durable.h"
#include "enqueue.h"
#include "flights.h"
#include "held_keys.h"
#include "lanes.h"
#include "maintenance.h"
#include "record.h"
#include "settings.h"
#include "standby.h"
#include "submit.h"
#include "worker_sinks.h"
#include "worker_slot.h"
#include "worker_wait.h"

#include <unistd.h>

extern "C" {
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
}

/* Completions are gathered for so long, or so many, before they are recorded: nobody waits for the recording. */
static const int RECORD_DELAY_MS = 20;
static const int RECORD_BATCH = 2000;
/* A sink that has more to claim than room waits for completions: they are collected this often. */
static const int COLLECT_MS = 3;
static const int COLLECT_MAX = 4096;
/* After a failed transaction: doubling up to this. */
static const int ERROR_PAUSE_MAX_MS = 10000;

static ob_engine *engine = NULL;
static bool engine_hangs = false; /* it was closed in vain */
static Oid extension_oid = InvalidOid;
static bool check_extension = true;
static MemoryContext round_context = NULL;

/* The loop's state. */
static bool claims_wanted = true;
static bool recalled_wanted = true;
static TimestampTz record_at = DT_NOEND; /* when what has ended is written down */
static int newly_ended = 0;
static TimestampTz polled_at = 0;
static TimestampTz error_until = 0;
static int error_pause_ms = 0;

/* ---- beginning and end ------------------------------------------------------------------------------------- */

static void relation_changed(Datum, Oid) {
  check_extension = true; /* DROP EXTENSION invalidates its tables; so does much else, and a look is cheap */
}

/* However the process ends: threads first, then the server's exit handlers. A thread that hangs in a resolver would
 * crash in OpenSSL's exit handler, and a crashed worker restarts the whole cluster: so leave without handlers then.
 * Runs after shared memory is let go. */
static void close_engine(int code, Datum) {
  if (engine && (engine_hangs || !ob_engine_close(engine, setting_shutdown_timeout)))
    _exit(code);
  engine = NULL;
}

static void set_session(void) {
  static const char *const session[][2] = {
      {"application_name", "outbox worker"},
      {"search_path", "pg_catalog, pg_temp"},
      /* What a crash loses of the recordings is sent again; what an application committed is another matter. */
      {"synchronous_commit", "off"},
      /* A person's lock on a table must not keep us from our signals. */
      {"lock_timeout", "2s"},
      {"statement_timeout", "0"},
      {"idle_in_transaction_session_timeout", "0"},
      {"default_transaction_isolation", "read committed"},
      {"default_transaction_read_only", "off"},
      {"session_replication_role", "origin"},
      /* Every statement has one right plan, also while the table has never been analysed. */
      {"plan_cache_mode", "force_generic_plan"},
      {"enable_seqscan", "off"},
      {"enable_bitmapscan", "off"},
      {"enable_sort", "off"},
      {"jit", "off"},
  };

  for (size_t i = 0; i < lengthof(session); i++)
    SetConfigOption(session[i][0], session[i][1], PGC_SUSET, PGC_S_OVERRIDE);
}

static Oid installed_extension(void) {
  Oid oid = get_extension_oid("outbox", true);

  /* CREATE EXTENSION may be under way: its tables are there when the extension is visible. */
  return OidIsValid(oid) && OidIsValid(get_namespace_oid("outbox", true)) ? oid : InvalidOid;
}

/* Leaves: the launcher starts nobody here until CREATE EXTENSION says so. Our word comes before our last look, so
 * that it cannot overrule one that commits in between. */
static void leave_without_extension(void) {
  worker_slot_tell_launcher(DATABASE_HAS_NONE);
  StartTransactionCommand();
  (void)GetTransactionSnapshot();
  bool made_again = OidIsValid(installed_extension());
  CommitTransactionCommand();
  if (made_again)
    worker_slot_tell_launcher(DATABASE_HAS_OUTBOX);
  proc_exit(made_again ? 1 : 0);
}

static void begin(const WorkerArguments *arguments) {
  pqsignal(SIGHUP, SignalHandlerForConfigReload);
  pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
  BackgroundWorkerUnblockSignals();
  BackgroundWorkerInitializeConnectionByOid(arguments->database, InvalidOid, 0);
  if (!worker_slot_take(arguments))
    proc_exit(1);
  standby_init();
  set_session();

  StartTransactionCommand();
  (void)GetTransactionSnapshot();
  extension_oid = installed_extension();
  CommitTransactionCommand();
  if (!OidIsValid(extension_oid))
    leave_without_extension();
  worker_slot_tell_launcher(DATABASE_HAS_OUTBOX);

  server_is_worker = true;
  round_context = AllocSetContextCreate(TopMemoryContext, "outbox round", ALLOCSET_DEFAULT_SIZES);
  CacheRegisterRelcacheCallback(relation_changed, (Datum)0);
  lanes_own(arguments->index, arguments->count);
  flights_init();
  held_keys_init();

  ob_error error;
  memset(&error, 0, sizeof(error));
  engine = ob_engine_open(&error);
  if (engine == NULL)
    ereport(FATAL, (errmsg("outbox could not start its delivery engine: %s", error.message)));
  on_proc_exit(close_engine, 0);
  worker_wait_init(ob_engine_fd(engine));
  worker_sinks_init(engine, arguments->index);
  durable_init();
}

/* ---- one round --------------------------------------------------------------------------------------------- */

static void take_completion(const ob_completion *completion, TimestampTz now) {
  Flight *flight = flight_of_ticket(completion->ticket);

  if (flight == NULL)
    return;
  WorkerSink *sink = flight->sink;
  ob_outcome outcome = completion->outcome;
  if (outcome == OB_RELEASED) {
    claim_return(flight);
    return;
  }
  if (outcome == OB_RETRY && flight->attempts + 1 >= sink->max_attempts)
    outcome = OB_REJECTED;
  worker_sink_event_ended(sink, flight->bytes);
  flight->ended_at = now;
  flight_end(flight, outcome, completion->retry_after_ms, completion->error);
  /* The key is held or goes on from here, before anything more of it is claimed. */
  if (sink->ordered && (outcome == OB_RETRY || (outcome == OB_REJECTED && sink->hold)))
    held_key_hold(sink->oid, flight->key_hash, flight->position);
  else
    held_key_release(sink->oid, flight->key_hash, flight->position);
  newly_ended++;
  record_at = Min(record_at, TimestampTzPlusMilliseconds(now, RECORD_DELAY_MS));
}

static void collect(TimestampTz now) {
  static ob_completion completions[COLLECT_MAX];
  size_t n;
  ob_log_line line;

  do {
    n = ob_collect(engine, completions, COLLECT_MAX);
    for (size_t i = 0; i < n; i++)
      take_completion(&completions[i], now);
  } while (n == COLLECT_MAX);
  while (ob_next_log(engine, &line))
    ereport(line.level == OB_LOG_WARNING ? WARNING
            : line.level == OB_LOG_INFO  ? LOG
                                         : DEBUG1,
            (errmsg("outbox sink \"%s\": %s", line.sink, line.text)));
}

void worker_stay_with_extension(void) {
  LockDatabaseObject(ExtensionRelationId, extension_oid, 0, AccessShareLock);
  if (!check_extension)
    return;
  check_extension = false;
  Oid now_installed = installed_extension();
  if (now_installed == extension_oid)
    return;
  AbortCurrentTransaction();
  leave_without_extension(); /* or, when it was made again, start anew */
}

/* The transaction. True when more could be claimed at once. */
static bool transact(TimestampTz now, bool claim) {
  bool more = false;
  int n_recorded = flights_ended();

  SetCurrentStatementStartTimestamp();
  StartTransactionCommand();
  worker_stay_with_extension();
  MemoryContextSwitchTo(round_context);
  PushActiveSnapshot(GetTransactionSnapshot());
  if (worker_sinks_reload()) {
    maintenance_routes_changed();
    recalled_wanted = true; /* dead letters of a sink that holds no more let their keys go */
  }
  if (n_recorded > 0)
    record_ended(now);
  if (claim) {
    worker_sinks_refresh(now);
    more = claim_events(now, &recalled_wanted);
  }
  PopActiveSnapshot();
  CommitTransactionCommand();
  MemoryContextSwitchTo(round_context);
  pgstat_report_stat(false); /* autovacuum goes by it */
  if (n_recorded > 0)
    record_committed(now);
  int freed = flights_settle_ended(true);
  if (freed > 0)
    flights_recorded(freed, XactLastCommitEnd);
  newly_ended = 0;
  record_at = flights_next_recording();
  if (claim) {
    durable_flush();
    submit_claimed();
    claim_settle();
  }
  return more;
}

/* A failed transaction loses nothing: what ended is recorded in the next one, what was claimed is given back. */
static bool round_trip(TimestampTz now, bool claim) {
  volatile bool more = false;

  MemoryContextReset(round_context);
  PG_TRY();
  {
    more = transact(now, claim);
    error_pause_ms = 0;
  }
  PG_CATCH();
  {
    MemoryContextSwitchTo(TopMemoryContext);
    HOLD_INTERRUPTS();
    /* Somebody's UPDATE moved a row to another partition while we locked it: nothing to report, try again. */
    bool moved = geterrcode() == ERRCODE_T_R_SERIALIZATION_FAILURE;
    if (!moved)
      EmitErrorReport();
    FlushErrorState();
    AbortCurrentTransaction();
    MemoryContextSwitchTo(round_context);
    flights_settle_ended(false);
    claim_give_back();
    RESUME_INTERRUPTS();
    error_pause_ms = moved ? 10 : Min(Max(error_pause_ms * 2, 100), ERROR_PAUSE_MAX_MS);
    error_until = TimestampTzPlusMilliseconds(now, error_pause_ms);
    more = false;
    recalled_wanted = true;
    worker_sinks_settings_changed(); /* the catalog may have been read in vain */
    maintenance_routes_changed();
  }
  PG_END_TRY();
  return more;
}

/* ---- the loop ---------------------------------------------------------------------------------------------- */

static bool any_sink_can_go_on(TimestampTz now) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  for (int i = 0; i < n; i++)
    if (sinks[i]->room > 0 && (sinks[i]->starved || held_keys_any_draining(sinks[i]->oid) || sinks[i]->n_late > 0 ||
                               sinks[i]->next_due <= now))
      return true;
  return false;
}

static bool any_sink_starved(void) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  for (int i = 0; i < n; i++)
    if (sinks[i]->starved)
      return true;
  return false;
}

static long milliseconds_until(TimestampTz now, TimestampTz moment) {
  return moment == DT_NOEND ? LONG_MAX : moment <= now ? 0 : (long)((moment - now + 999) / 1000);
}

/* How long the worker may sleep if nobody wakes it. */
static long sleep_time(TimestampTz now) {
  long ms = submit_waits() ? submit_pause_ms(now)
                           : milliseconds_until(now, TimestampTzPlusMilliseconds(polled_at, setting_poll_interval));

  if (!submit_waits()) {
    ms = Min(ms, milliseconds_until(now, worker_sinks_next_moment()));
    ms = Min(ms, milliseconds_until(now, claim_next_moment()));
  }
  ms = Min(ms, milliseconds_until(now, maintenance_next_moment()));
  ms = Min(ms, milliseconds_until(now, record_at));
  /* After an error nothing goes faster than its pause. */
  return Max(ms, milliseconds_until(now, error_until));
}

static void reload_settings(void) {
  if (!ConfigReloadPending)
    return;
  ConfigReloadPending = false;
  ProcessConfigFile(PGC_SIGHUP);
  worker_sinks_settings_changed();
  claims_wanted = true;
}

static void say_what_goes_on(void) {
  int n;

  (void)worker_sinks_all(&n);
  worker_slot_say(submit_stands_still()  ? "waiting for a synchronous standby"
                  : flights_in_use() > 0 ? "delivering"
                  : n == 0               ? "no sink"
                                         : "waiting for events");
}

static void one_loop(void) {
  WorkerSlot *slot = worker_slot();
  TimestampTz now = GetCurrentTimestamp();

  worker_slot_refresh(now);
  /* Armed before the snapshot is taken: whatever commits after it sets the latch. */
  if (pg_atomic_exchange_u32(&slot->armed, 1) == 0)
    claims_wanted = true;
  pg_memory_barrier();
  if (pg_atomic_exchange_u32(&slot->recalled, 0) == 1)
    recalled_wanted = claims_wanted = true;

  collect(now);
  if (submit_look(now))
    claims_wanted = true;
  worker_sinks_refresh(now);
  bool poll = TimestampDifferenceExceeds(polled_at, now, setting_poll_interval);
  if (poll) {
    /* Prepared transactions, crashes between commit and wake-up, sessions without our library. */
    polled_at = now;
    recalled_wanted = true;
  }
  if (now >= error_until) {
    bool claim = !submit_waits() && (claims_wanted || poll || any_sink_can_go_on(now) || claim_next_moment() <= now);
    bool record = newly_ended >= RECORD_BATCH || record_at <= now;
    if (claim || record)
      claims_wanted = round_trip(now, claim);
    maintenance_run(now, slot->index == 0);
  }
  say_what_goes_on();
}

static void wait_for_something(void) {
  TimestampTz now = GetCurrentTimestamp();
  long ms = claims_wanted && !submit_waits() && now >= error_until ? 0 : sleep_time(now);

  /* While completions are gathered for one recording, more of them are no reason to wake up at once. */
  if (newly_ended > 0 && any_sink_starved())
    ms = Min(ms, COLLECT_MS);
  worker_wait(ms, newly_ended == 0);
  reload_settings();
}

/* A planned end should cost no duplicate: what is in the air may land, within outbox.shutdown_timeout. */
static void land(void) {
  TimestampTz until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), setting_shutdown_timeout);

  worker_slot_say("shutting down");
  submit_give_back();
  for (;;) {
    TimestampTz now = GetCurrentTimestamp();
    collect(now);
    if (flights_in_use() == flights_ended() || now >= until)
      break;
    worker_wait(milliseconds_until(now, until), true);
  }
  int before;
  do {
    before = flights_ended();
    if (before > 0)
      (void)round_trip(GetCurrentTimestamp(), false);
  } while (flights_ended() < before);
  /* Nobody takes our lanes over while old threads still send: the slot goes after them. */
  if (ob_engine_close(engine, setting_shutdown_timeout))
    engine = NULL;
  else
    engine_hangs = true;
}

void outbox_worker_main(Datum) {
  WorkerArguments arguments;

  memcpy(&arguments, MyBgworkerEntry->bgw_extra, sizeof(arguments));
  begin(&arguments);

  StartTransactionCommand();
  worker_stay_with_extension();
  PushActiveSnapshot(GetTransactionSnapshot());
  MemoryContextSwitchTo(round_context);
  (void)worker_sinks_reload();
  claim_init(origin_here());
  PopActiveSnapshot();
  CommitTransactionCommand();
  maintenance_routes_changed();

  while (!ShutdownRequestPending) {
    one_loop();
    if (!ShutdownRequestPending)
      wait_for_something();
  }
  land();
  proc_exit(1); /* the launcher decides whether anybody comes after us */
}
