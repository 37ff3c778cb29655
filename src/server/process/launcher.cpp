/*
 * launcher.cpp: starts workers, restarts dead ones with growing pauses (restart_pause.h), and follows pg_database.
 *
 * It connects to no database. A database is UNKNOWN until a worker has looked for the extension in it. The worker
 * stays if it finds the extension in the library's version, and exits otherwise. The commit of CREATE EXTENSION or
 * ALTER EXTENSION UPDATE marks its database (wake.cpp). Other things that make an extension usable mark nothing, so
 * workers look again from time to time (look_again.h).
 */
#include "server/process/launcher.h"

#include "server/base/fault_point.h"
#include "server/base/settings.h"
#include "server/process/database_scan.h"
#include "server/process/look_again.h"
#include "server/process/restart_pause.h"
#include "server/process/slot_sharing.h"
#include "server/process/worker_health.h"
#include "server/process/worker_slot.h"
#include "server/shmem/shared_state.h"
#include "server/storage/crash_record.h"

#include <signal.h>

extern "C" {
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/wait_event.h"
#include "utils/guc.h"
#include "utils/memutils.h"
}

/* Workers that look for the extension at the same time, so that they leave slots to other programs. */
static const int MAX_SEARCHING = 2;
static const int RESCAN_MS = 60000;
/* The longest sleep while waiting for a wall time, because the clock may be set. */
static const long CLOCK_CHECK_MS = 10000;
/* The longest sleep while workers of an earlier launcher end, and while no background worker slot is free. */
static const int LEFT_OVER_CHECK_MS = 100;
static const int OUT_OF_SLOTS_CHECK_MS = 5000;
/* Databases share slots without a log message until one has waited this long. */
static const int LONG_WAIT_MS = 10000;

/* A worker that this launcher started. */
typedef struct Child {
  bool used;
  bool stopping;
  bool dismissed; /* outbox.workers has shrunk: it exits by own_bit after its shards are handed over */
  WorkerArguments arguments;
  BackgroundWorkerHandle *handle;
  Moment started;
} Child;

static Child children[OUTBOX_MAX_WORKERS];
static bool reported_out_of_slots = false;

extern "C" PGDLLEXPORT void outbox_launcher_main(Datum argument);

void launcher_register(void) {
  BackgroundWorker worker;

  memset(&worker, 0, sizeof(worker));
  worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
  worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
  worker.bgw_restart_time = 1;
  strlcpy(worker.bgw_library_name, "outbox", sizeof(worker.bgw_library_name));
  strlcpy(worker.bgw_function_name, "outbox_launcher_main", sizeof(worker.bgw_function_name));
  strlcpy(worker.bgw_name, "outbox launcher", BGW_MAXLEN);
  strlcpy(worker.bgw_type, "outbox launcher", BGW_MAXLEN);
  RegisterBackgroundWorker(&worker);
}

static void forget_launcher(int, Datum) {
  SharedState *shared = shared_state();

  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  if (shared->launcher_pid == MyProcPid) {
    shared->launcher_pid = 0;
    shared->launcher_latch = NULL;
  }
  LWLockRelease(shared->lock);
}

/* Workers of a launcher that crashed get SIGTERM, because their handles are lost; new ones replace them. */
static void announce_launcher(void) {
  SharedState *shared = shared_state();

  before_shmem_exit(forget_launcher, 0);
  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  shared->launcher_pid = MyProcPid;
  shared->launcher_latch = MyLatch;
  shared->rescan = true;
  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++)
    if (shared->workers[i].pid != 0)
      kill(shared->workers[i].pid, SIGTERM);
  LWLockRelease(shared->lock);
}

/* Handles workers that have exited. */
static void handle_exited(Now now) {
  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    Child *child = &children[i];
    pid_t pid;
    if (!child->used || GetBackgroundWorkerPid(child->handle, &pid) != BGWH_STOPPED)
      continue;
    OUTBOX_FAULT_POINT("launcher.exited");
    look_again().looked(child->arguments.database);
    pfree(child->handle);
    child->used = false;
    if (child->dismissed)
      continue;

    LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
    DatabaseSlot *slot = shared_database(child->arguments.database, false);
    uint64 own_bit = UINT64CONST(1) << child->arguments.index;
    bool announced = slot && (slot->expected_exits & own_bit) != 0;
    bool expected = child->stopping || slot == NULL || slot->blocked_by_ddl_pid != 0 ||
                    slot->state >= DATABASE_OTHER_VERSION || announced;
    if (slot)
      slot->expected_exits &= ~own_bit;
    LWLockRelease(shared_state()->lock);
    if (expected)
      restart_pauses().ended_as_told(child->arguments.database);
    else
      restart_pauses().failed(child->arguments.database, child->started, now);
  }
}

/* The workers of a database that run or are starting; bit i is the worker of index i. */
typedef struct Running {
  uint64 started_here;
  uint64 left_over; /* started by an earlier launcher; they have got SIGTERM */
  bool first_runs;  /* the worker with index 0 has its slot */
} Running;

static bool is_child(pid_t pid) {
  pid_t child_pid;

  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++)
    if (children[i].used && GetBackgroundWorkerPid(children[i].handle, &child_pid) == BGWH_STARTED &&
        child_pid == pid)
      return true;
  return false;
}

static Running running_workers(Oid database) {
  SharedState *shared = shared_state();
  Running running = {0, 0, false};

  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++)
    if (children[i].used && children[i].arguments.database == database)
      running.started_here |= UINT64CONST(1) << children[i].arguments.index;
  LWLockAcquire(shared->lock, LW_SHARED);
  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    WorkerSlot *slot = &shared->workers[i];
    if (slot->pid == 0 || slot->database != database)
      continue;
    running.first_runs |= slot->index == 0;
    if (is_child(slot->pid))
      continue;
    running.left_over |= UINT64CONST(1) << slot->index;
    kill(slot->pid, SIGTERM);
  }
  LWLockRelease(shared->lock);
  return running;
}

/* Sets the number of workers among which the database's shards are divided. The workers hand the shards over; surplus
 * workers exit when they have none left. */
static void spread_shards(DatabaseSlot *slot, Oid database, int workers) {
  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++)
    if (children[i].used && children[i].arguments.database == database && children[i].arguments.index >= workers)
      children[i].dismissed = true;
  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
  if (slot->oid == database && slot->workers != workers) {
    OUTBOX_SIGNAL_POINT("launcher.spread");
    slot->workers = workers;
    ereport(DEBUG2, (errmsg_internal("outbox shards of database %u are spread, workers: %d", database, workers)));
    shared_shards_changed(database);
  }
  LWLockRelease(shared_state()->lock);
}

static void stop_children(Oid database) {
  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++)
    if (children[i].used && !children[i].stopping && children[i].arguments.database == database) {
      OUTBOX_FAULT_POINT("launcher.before_stop");
      children[i].stopping = true;
      TerminateBackgroundWorker(children[i].handle);
    }
}

/* Stops workers of databases that became templates or allow no connections anymore. */
static void stop_strays(void) {
  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    if (!children[i].used || children[i].stopping)
      continue;
    LWLockAcquire(shared_state()->lock, LW_SHARED);
    bool stray = shared_database(children[i].arguments.database, false) == NULL;
    LWLockRelease(shared_state()->lock);
    if (stray)
      stop_children(children[i].arguments.database);
  }
}

/* Returns false when the server has no free background worker slot. */
static bool start_child(const WorkerArguments *arguments, Moment now) {
  BackgroundWorker worker;
  Child *child = NULL;

  for (int i = 0; i < OUTBOX_MAX_WORKERS && child == NULL; i++)
    if (!children[i].used)
      child = &children[i];
  if (child == NULL)
    return false;

  memset(&worker, 0, sizeof(worker));
  worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
  worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
  worker.bgw_restart_time = BGW_NEVER_RESTART; /* the launcher restarts it, with growing pauses */
  worker.bgw_notify_pid = MyProcPid;
  strlcpy(worker.bgw_library_name, "outbox", sizeof(worker.bgw_library_name));
  strlcpy(worker.bgw_function_name, "outbox_worker_main", sizeof(worker.bgw_function_name));
  snprintf(worker.bgw_name, BGW_MAXLEN, "outbox worker for database %u", arguments->database);
  strlcpy(worker.bgw_type, "outbox worker", BGW_MAXLEN);
  memcpy(worker.bgw_extra, arguments, sizeof(*arguments));

  MemoryContext previous = MemoryContextSwitchTo(TopMemoryContext);
  bool registered = RegisterDynamicBackgroundWorker(&worker, &child->handle);
  MemoryContextSwitchTo(previous);
  OUTBOX_FAULT_POINT("launcher.registered");
  if (!registered)
    return false;
  child->used = true;
  child->stopping = child->dismissed = false;
  child->arguments = *arguments;
  child->started = now;
  return true;
}

/* Does the database stay idle? Otherwise sets DATABASE_ACTIVE. */
static bool stays_idle(DatabaseSlot *slot, Now now) {
  bool wanted = slot->idle_until <= now.moment || slot->idle_due <= now.wall ||
                slot->idle_settings != settings_idle_hash() || pg_atomic_read_u32(&slot->wakeup_requested) == 1;

  if (!wanted)
    return true;
  OUTBOX_FAULT_POINT("launcher.wake");
  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
  if (slot->state == DATABASE_IDLE)
    database_change_state(slot, DATABASE_ACTIVE);
  LWLockRelease(shared_state()->lock);
  return false;
}

static void report_out_of_slots(int waiting, Moment since, Moment now) {
  if (reported_out_of_slots || waiting == 0 || !moment_is_past(since, now, LONG_WAIT_MS))
    return;
  reported_out_of_slots = true;
  ereport(WARNING,
          (errmsg("no free background worker slot for outbox"),
           errdetail("Databases that wait for a worker: %d, the first of them for %ld s. Databases with work share "
                     "the slots.",
                     waiting, (long)((now.us - since.us) / USECS_PER_SEC)),
           errhint("Increase max_worker_processes.")));
}

/* The queue of databases for free background worker slots. */
static struct {
  int first;              /* index of the database that gets the next free slot */
  bool any_without_first; /* in the last round a database was left without its first worker */
} slot_queue;

/* The results of a round over all databases. */
typedef struct Round {
  Now now;
  long sleep_ms;      /* until the next round, at most */
  int searching;      /* workers that look for the extension */
  bool full;          /* the server has no free background worker slot */
  bool out_of_slots;  /* a missing worker could not be started */
  int waiting;        /* databases without their first worker for this reason … */
  Moment waits_since; /* … and the moment since which the first of them waits */
} Round;

static void sleep_until(Round *round, Moment moment) {
  round->sleep_ms = Min(round->sleep_ms, milliseconds_until(round->now.moment, moment));
}

static bool is_searched(int i, const DatabaseSlot *slot) {
  return slot->state == DATABASE_UNKNOWN || (slot->state >= DATABASE_OTHER_VERSION && look_again().is_chosen(i));
}

static int wanted_workers(int i, const DatabaseSlot *slot) {
  if (!setting_enabled || slot->blocked_by_ddl_pid != 0)
    return 0;
  return database_has_outbox(slot->state) ? setting_workers : is_searched(i, slot) ? 1 : 0;
}

/* Lets workers start again if the session that stopped them for its DDL has died. */
static void forget_dead_session(DatabaseSlot *shared_slot, DatabaseSlot *slot) {
  if (slot->blocked_by_ddl_pid == 0 || kill(slot->blocked_by_ddl_pid, 0) == 0 || errno != ESRCH)
    return;
  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
  if (shared_slot->blocked_by_ddl_pid == slot->blocked_by_ddl_pid)
    shared_slot->blocked_by_ddl_pid = slot->blocked_by_ddl_pid = 0;
  LWLockRelease(shared_state()->lock);
}

/* Is the pause after failed workers not over yet? CREATE EXTENSION ends it. */
static bool is_paused(DatabaseSlot *shared_slot, const DatabaseSlot *slot, Round *round) {
  if (slot->state == DATABASE_ANNOUNCED) {
    LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
    if (shared_slot->state == DATABASE_ANNOUNCED)
      database_change_state(shared_slot, DATABASE_ACTIVE);
    LWLockRelease(shared_state()->lock);
    restart_pauses().forget(slot->oid);
    return false;
  }
  const Moment until = restart_pauses().until(slot->oid);
  if (until <= round->now.moment)
    return false;
  sleep_until(round, until);
  return true;
}

/* Starts missing workers until one cannot be started. The first one takes over the keys of all that are missing, and
 * without it no worker serves these: so a database gets a second worker only when no other waits for its first.
 * Returns the number of workers, counted from index 0, that now run or start. */
static int start_missing(int i, Oid database, Running running, int wanted, Round *round) {
  const uint64 present = running.started_here | running.left_over;

  for (int index = 0; index < wanted; index++) {
    WorkerArguments arguments = {database, index};
    if ((present >> index) & 1)
      continue;
    bool is_first = index == 0;
    bool must_wait = slot_queue.any_without_first && !is_first;
    if (!round->full && !must_wait) {
      if (start_child(&arguments, round->now.moment))
        continue;
      slot_queue.first = i;
      round->full = true;
    }
    round->out_of_slots = true;
    if (is_first) {
      round->waiting++;
      round->waits_since = Min(round->waits_since, shared_state()->health[i].wanted_since);
    }
    return index;
  }
  return wanted;
}

static void reconcile_database(int i, Round *round) {
  DatabaseSlot *shared_slot = &shared_state()->databases[i];
  const Moment now = round->now.moment;

  LWLockAcquire(shared_state()->lock, LW_SHARED);
  DatabaseSlot slot = *shared_slot;
  LWLockRelease(shared_state()->lock);
  if (slot.oid == InvalidOid)
    return;
  forget_dead_session(shared_slot, &slot);
  const int wanted = wanted_workers(i, &slot);
  if (wanted == 0) {
    worker_health_wanted(shared_slot, slot.oid, false, now);
    if (slot.state < DATABASE_OTHER_VERSION)
      stop_children(slot.oid);
    return;
  }
  if (slot.state == DATABASE_IDLE && stays_idle(shared_slot, round->now)) {
    worker_health_wanted(shared_slot, slot.oid, false, now);
    sleep_until(round, slot.idle_until);
    if (slot.idle_due != DT_NOEND) /* the clock may be set */
      sleep_until(round, Min(moment_of_wall(round->now, slot.idle_due), moment_after(now, CLOCK_CHECK_MS)));
    return;
  }
  const Running running = running_workers(slot.oid);
  worker_health_wanted(shared_slot, slot.oid, !running.first_runs, now);
  if (is_searched(i, &slot) && running.started_here != 0) {
    round->searching++;
    return;
  }
  if (running.left_over != 0)
    sleep_until(round, moment_after(now, LEFT_OVER_CHECK_MS));
  if (slot.workers > wanted)
    spread_shards(shared_slot, slot.oid, wanted);
  if (is_paused(shared_slot, &slot, round))
    return;
  if (is_searched(i, &slot) && ++round->searching > MAX_SEARCHING)
    return;
  const int present = start_missing(i, slot.oid, running, wanted, round);
  spread_shards(shared_slot, slot.oid, Max(present, 1)); /* workers that cannot start get no shards */
}

/* Starts and stops workers as needed. Returns how long to sleep, in milliseconds. */
static long reconcile(Now now) {
  SharedState *shared = shared_state();
  Round round = {};
  const int first = slot_queue.first;

  round.now = now;
  round.sleep_ms = RESCAN_MS;
  round.waits_since = now.moment;
  for (int step = 0; step < OUTBOX_MAX_DATABASES; step++)
    reconcile_database((first + step) % OUTBOX_MAX_DATABASES, &round);

  shared->out_of_slots = round.out_of_slots;
  if (round.out_of_slots)
    sleep_until(&round, moment_after(now.moment, OUT_OF_SLOTS_CHECK_MS));
  else
    reported_out_of_slots = false;
  if (round.waiting > 0) {
    report_out_of_slots(round.waiting, round.waits_since, now.moment);
    slot_sharing_revoke(round.waiting, now.moment, &round.sleep_ms);
  } else if (slot_queue.any_without_first) {
    round.sleep_ms = 0; /* databases that have one worker may now get more */
  }
  slot_queue.any_without_first = round.waiting > 0;
  shared->launcher_looked = now.moment;
  return round.sleep_ms;
}

void outbox_launcher_main(Datum) {
  pqsignal(SIGHUP, SignalHandlerForConfigReload);
  pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
  crash_records_begin();
  BackgroundWorkerUnblockSignals();
  BackgroundWorkerInitializeConnection(NULL, NULL, 0);
  settings_reread();
  announce_launcher();

  MemoryContext round = AllocSetContextCreate(TopMemoryContext, "outbox launcher round", ALLOCSET_DEFAULT_SIZES);
  Moment scanned_at = MOMENT_NONE, looked_again_at = moment_now();
  const uint32 wait_event = outbox_wait_event("OutboxLauncherMain");
  pgstat_report_activity(STATE_IDLE, "waiting for databases that need a worker");
  while (!ShutdownRequestPending) {
    MemoryContextSwitchTo(round);
    MemoryContextReset(round);
    Now now = now_read();
    if (shared_state()->rescan || moment_is_past(scanned_at, now.moment, RESCAN_MS)) {
      scan_databases();
      stop_strays();
      MemoryContextSwitchTo(round);
      if (moment_is_past(looked_again_at, now.moment, RESCAN_MS)) {
        look_again().choose(false);
        looked_again_at = now.moment;
      }
      scanned_at = now.moment;
      restart_pauses().count_crashes(now.wall);
    }
    OUTBOX_FAULT_POINT("launcher.begin");
    handle_exited(now);
    OUTBOX_FAULT_POINT("launcher.before_reconcile");
    long sleep_ms = reconcile(now);
    (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, sleep_ms, wait_event);
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
    if (ConfigReloadPending) {
      ConfigReloadPending = false;
      ProcessConfigFile(PGC_SIGHUP);
      look_again().choose(true);
    }
  }
  /* Exit code 0 would unregister the launcher, and pg_terminate_backend() would end delivery for good. */
  proc_exit(1);
}
