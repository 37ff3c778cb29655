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
#include "worker_error.h"
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
/* A failure that may be the sink's own is recorded so much later: when the circuit opens meanwhile, it never was. */
static const int SUSPECT_DELAY_MS = 250;
/* A sink that has more to claim than room waits for completions: they are collected this often. */
static const int COLLECT_MS = 3;
static const int COLLECT_MAX = 4096;
static const int START_PAUSE_MS = 200;

static ob_engine *engine = NULL;
static bool engine_hangs = false; /* it was closed in vain */
static Oid extension_oid = InvalidOid;
static bool check_extension = true;
static MemoryContext claim_context = NULL; /* of a round that claims: the batches, until they are submitted */
static MemoryContext record_context = NULL;
static MemoryContext round_context = NULL; /* one of them */

/* The loop's state. */
static bool claims_wanted = true;
static bool recalled_wanted = true;
static TimestampTz record_at = DT_NOEND; /* when what has ended is written down */
static int newly_ended = 0;
static TimestampTz polled_at = 0;

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
      {"enable_indexscan", "on"},
      {"enable_nestloop", "on"},
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
  pqsignal(SIGTERM, worker_end_handler);
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
  round_context = claim_context = AllocSetContextCreate(TopMemoryContext, "outbox claim", ALLOCSET_DEFAULT_SIZES);
  record_context = AllocSetContextCreate(TopMemoryContext, "outbox recording", ALLOCSET_DEFAULT_SIZES);
  CacheRegisterRelcacheCallback(relation_changed, (Datum)0);
  lanes_init(arguments->index);
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
  if (completion->suspect) {
    flight->suspect = true;
    flight->record_after = TimestampTzPlusMilliseconds(now, SUSPECT_DELAY_MS);
  }
  if (sink->ordered && (outcome == OB_RETRY || flight->suspect || (outcome == OB_REJECTED && sink->hold)))
    held_key_hold(sink->oid, flight->key_hash, flight->position);
  else
    held_key_release(sink->oid, flight->key_hash, flight->position);
  if (flight->suspect) {
    record_at = Min(record_at, flight->record_after);
    return;
  }
  newly_ended++;
  record_at = Min(record_at, TimestampTzPlusMilliseconds(now, RECORD_DELAY_MS));
}

static void give_back_suspect(Flight *flight) {
  WorkerSink *sink = flight->sink;

  if (flight->attempts == 0) /* else it leads its key as before */
    held_key_release(sink->oid, flight->key_hash, flight->position);
  worker_sink_event_not_ended(sink, flight->bytes);
  claim_return(flight);
}

/* An outage has been recognised: the failures that showed it are not their events' fault. */
static void acquit_suspects(void) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  for (int i = 0; i < n && flights_ended() > 0; i++)
    if (sinks[i]->status.state == OB_SINK_CIRCUIT_OPEN)
      flights_acquit(sinks[i], give_back_suspect);
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

static volatile WorkerTask task; /* what the running transaction is about */

static void begin_transaction(void) {
  SetCurrentStatementStartTimestamp();
  StartTransactionCommand();
  worker_stay_with_extension();
  MemoryContextSwitchTo(round_context);
  PushActiveSnapshot(GetTransactionSnapshot());
  if (worker_sinks_reload()) {
    maintenance_routes_changed();
    recalled_wanted = true; /* dead letters of a sink that holds no more let their keys go */
  }
}

static void commit_transaction(void) {
  PopActiveSnapshot();
  CommitTransactionCommand();
  MemoryContextSwitchTo(round_context);
  pgstat_report_stat(false); /* autovacuum goes by it */
}

/* The transaction. True when more could be claimed at once. */
static bool transact(TimestampTz now, bool record, bool claim) {
  bool more = false;

  task = TASK_CLAIM;
  begin_transaction();
  if (record) {
    task = TASK_RECORD;
    record_ended(now);
    task = claim ? TASK_CLAIM : TASK_RECORD;
  }
  if (claim) {
    worker_sinks_refresh(now);
    more = claim_events(now, &recalled_wanted);
  }
  commit_transaction();
  if (record) {
    record_committed(now);
    int freed = flights_settle_ended(true);
    if (freed > 0)
      flights_recorded(freed, XactLastCommitEnd);
    newly_ended = 0;
    record_at = flights_next_recording();
    worker_succeeded(TASK_RECORD);
  }
  if (claim) {
    durable_flush();
    submit_claimed();
    claim_settle();
    worker_succeeded(TASK_CLAIM);
  }
  return more;
}

/* A failed transaction loses nothing: what ended is recorded in the next one, what was claimed is given back. */
static bool round_trip(TimestampTz now, bool wants_record, bool claim) {
  volatile bool more = false;
  const volatile bool record = wants_record && flights_ended() > 0;

  round_context = claim ? claim_context : record_context;
  MemoryContextReset(round_context);
  worker_end_cancels(!ShutdownRequestPending);
  PG_TRY();
  { more = transact(now, record, claim); }
  PG_CATCH();
  {
    bool rows_to_blame = worker_failed(task, now);
    MemoryContextSwitchTo(round_context);
    if (record) {
      if (task == TASK_RECORD && rows_to_blame && record_aborted(now, worker_last_error()))
        worker_succeeded(TASK_RECORD); /* a smaller part of them may do, at once */
      flights_settle_ended(false);
      record_at = flights_next_recording();
    }
    if (claim) {
      claim_give_back();
      recalled_wanted = true;
    }
    more = false;
    worker_sinks_settings_changed(); /* the catalog may have been read in vain */
    maintenance_routes_changed();
  }
  PG_END_TRY();
  worker_end_cancels(false);
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
  ms = Min(ms, milliseconds_until(now, lanes_next_moment()));
  /* After an error nothing goes faster than its pause. */
  ms = Max(ms, milliseconds_until(now, worker_pause_end(TASK_CLAIM)));
  return Min(ms, milliseconds_until(now, Max(record_at, worker_pause_end(TASK_RECORD))));
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
  worker_slot_say(worker_waits_for_lock() ? "waiting for a lock"
                  : submit_stands_still() ? "waiting for a synchronous standby"
                  : lanes_landing()       ? "handing lanes over"
                  : flights_in_use() > 0  ? "delivering"
                  : n == 0                ? "no sink"
                                          : "waiting for events");
}

/* Between transactions: what we have claimed of a lane is known when it changes hands. */
static void follow_lanes(TimestampTz now) {
  if (lanes_follow(now))
    claims_wanted = recalled_wanted = true;
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
  acquit_suspects();
  bool poll = TimestampDifferenceExceeds(polled_at, now, setting_poll_interval);
  if (poll) {
    /* Prepared transactions, crashes between commit and wake-up, sessions without our library. */
    polled_at = now;
    recalled_wanted = true;
  }
  bool claim = !submit_waits() && (claims_wanted || poll || any_sink_can_go_on(now) || claim_next_moment() <= now) &&
               now >= worker_pause_end(TASK_CLAIM);
  bool record = (claim || newly_ended >= RECORD_BATCH || record_at <= now) && now >= worker_pause_end(TASK_RECORD);
  if (record && (worker_in_trouble() || record_in_trouble())) {
    (void)round_trip(now, true, false);
    record = false;
  }
  if (claim)
    claims_wanted = round_trip(now, record, true);
  else if (record)
    (void)round_trip(now, true, false);
  if (now >= worker_pause_end(TASK_CLAIM))
    maintenance_run(now, slot->index == 0);
  follow_lanes(now);
  say_what_goes_on();
}

static void wait_for_something(void) {
  TimestampTz now = GetCurrentTimestamp();
  long ms = claims_wanted && !submit_waits() && now >= worker_pause_end(TASK_CLAIM) ? 0 : sleep_time(now);

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
  /* Whoever waits for us to go waits for no lock of somebody else's besides. */
  SetConfigOption("lock_timeout", "200ms", PGC_SUSET, PGC_S_OVERRIDE);
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
      (void)round_trip(GetCurrentTimestamp(), true, false);
  } while (flights_ended() < before);
  /* Nobody takes our lanes over while old threads still send: the slot goes after them. */
  if (ob_engine_close(engine, setting_shutdown_timeout))
    engine = NULL;
  else
    engine_hangs = true;
}

/* The first look at sinks and rows; false when somebody's lock is in the way. */
static bool look_around(void) {
  volatile bool done = false;

  worker_end_cancels(!ShutdownRequestPending);
  PG_TRY();
  {
    begin_transaction();
    claim_init(origin_here());
    commit_transaction();
    done = true;
  }
  PG_CATCH();
  {
    (void)worker_failed(TASK_CLAIM, GetCurrentTimestamp());
    worker_sinks_settings_changed();
  }
  PG_END_TRY();
  worker_end_cancels(false);
  maintenance_routes_changed();
  return done;
}

void outbox_worker_main(Datum) {
  WorkerArguments arguments;

  memcpy(&arguments, MyBgworkerEntry->bgw_extra, sizeof(arguments));
  begin(&arguments);

  while (!ShutdownRequestPending && !look_around())
    worker_wait(START_PAUSE_MS, false);
  follow_lanes(GetCurrentTimestamp());
  while (!ShutdownRequestPending) {
    one_loop();
    if (lanes_superfluous() && flights_in_use() == 0 && worker_slot_resign())
      proc_exit(0);
    if (!ShutdownRequestPending)
      wait_for_something();
  }
  land();
  proc_exit(1); /* the launcher decides whether anybody comes after us */
}
