/*
 * launcher.cpp: starts workers, restarts dead ones with growing pauses, and follows pg_database.
 *
 * It connects to no database. A database is UNKNOWN until a worker has looked into it; the worker stays where it
 * finds the extension, in the library's version, and leaves where it does not. CREATE EXTENSION and ALTER EXTENSION
 * UPDATE mark their database at commit (wake.cpp).
 */
#include "server/process/launcher.h"

#include "server/base/settings.h"
#include "server/process/database_scan.h"
#include "server/process/slot_sharing.h"
#include "server/process/worker_health.h"
#include "server/process/worker_slot.h"
#include "server/shmem/shared_state.h"

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

/* Restart pauses double from one second to a minute; a minute's life forgives. */
static const int64 FIRST_PAUSE_MS = 1000;
static const int64 LAST_PAUSE_MS = 60000;
/* Looking into databases must not eat the worker slots of others. */
static const int MAX_LOOKING = 2;
static const int RESCAN_MS = 60000;
/* Who waits for a time of the wall clock looks at it again so soon, at the latest. */
static const long CLOCK_LOOK_MS = 10000;
/* Workers that an earlier launcher left were asked to end, and a full server may have a free slot again: so soon the
 * launcher looks again. */
static const int LEFT_OVER_LOOK_MS = 100;
static const int OUT_OF_SLOTS_LOOK_MS = 5000;
/* That databases take turns is no news; that one has waited for so long is. */
static const int LONG_WAIT_MS = 10000;

/* A worker that this launcher started. */
typedef struct Child {
  bool used;
  bool stopping;
  bool dismissed; /* its shards are spread over the others: it leaves by itself */
  WorkerArguments arguments;
  BackgroundWorkerHandle *handle;
  Moment started;
} Child;

/* Why a worker is not started right now: it died lately. */
typedef struct Pause {
  Oid database;
  int failures;
  Moment until;
} Pause;

static Child children[OUTBOX_MAX_WORKERS];
static Pause pauses[OUTBOX_MAX_DATABASES];
static bool said_out_of_slots = false;

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

/* A launcher that died left workers whose handles are lost: they are asked to end, and new ones take over. */
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

static Pause *pause_of(Oid database) {
  Pause *free_pause = NULL;

  for (int i = 0; i < OUTBOX_MAX_DATABASES; i++) {
    if (pauses[i].database == database)
      return &pauses[i];
    if (pauses[i].database == InvalidOid && free_pause == NULL)
      free_pause = &pauses[i];
  }
  if (free_pause) {
    free_pause->database = database;
    free_pause->failures = 0;
    free_pause->until = MOMENT_NONE;
  }
  return free_pause;
}

/* Takes notice of children that ended. */
static void reap(Now now) {
  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    Child *child = &children[i];
    pid_t pid;
    if (!child->used || GetBackgroundWorkerPid(child->handle, &pid) != BGWH_STOPPED)
      continue;
    pfree(child->handle);
    child->used = false;
    if (child->dismissed)
      continue;

    LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
    DatabaseSlot *slot = shared_database(child->arguments.database, false);
    uint64 itself = UINT64CONST(1) << child->arguments.index;
    bool rests = slot && (slot->expected_exits & itself) != 0;
    bool expected = child->stopping || slot == NULL || slot->blocked_by_ddl_pid != 0 ||
                    slot->state >= DATABASE_OTHER_VERSION || rests;
    if (slot)
      slot->expected_exits &= ~itself;
    LWLockRelease(shared_state()->lock);
    Pause *pause = pause_of(child->arguments.database);
    if (pause == NULL)
      continue;
    if (expected) {
      pause->database = InvalidOid;
      worker_health_ended(child->arguments.database, 0, 0, MOMENT_NONE);
      continue;
    }
    if (moment_is_past(child->started, now.moment, LAST_PAUSE_MS))
      pause->failures = 0;
    int64 delay = FIRST_PAUSE_MS << Min(pause->failures, 6);
    pause->failures++;
    pause->until = moment_after(now.moment, Min(delay, LAST_PAUSE_MS));
    worker_health_ended(child->arguments.database, pause->failures, now.wall, pause->until);
  }
}

/* The workers of a database, by index: those that run or are being started. */
typedef struct Running {
  uint64 ours;
  uint64 others; /* left by an earlier launcher, which had their handles: they were asked to end */
  bool at_work;  /* any of them has its slot */
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
      running.ours |= UINT64CONST(1) << children[i].arguments.index;
  LWLockAcquire(shared->lock, LW_SHARED);
  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    WorkerSlot *slot = &shared->workers[i];
    if (slot->pid == 0 || slot->database != database)
      continue;
    running.at_work = true;
    if (is_child(slot->pid))
      continue;
    running.others |= UINT64CONST(1) << slot->index;
    kill(slot->pid, SIGTERM);
  }
  LWLockRelease(shared->lock);
  return running;
}

/* Over how many workers the shards of a database are spread. The workers hand them over among themselves, and those
 * that are too many leave when they have none left. */
static void spread_shards(DatabaseSlot *slot, Oid database, int workers) {
  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++)
    if (children[i].used && children[i].arguments.database == database && children[i].arguments.index >= workers)
      children[i].dismissed = true;
  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
  if (slot->oid == database && slot->workers != workers) {
    slot->workers = workers;
    shared_shards_changed(database);
  }
  LWLockRelease(shared_state()->lock);
}

static void stop_children(Oid database) {
  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++)
    if (children[i].used && !children[i].stopping && children[i].arguments.database == database) {
      children[i].stopping = true;
      TerminateBackgroundWorker(children[i].handle);
    }
}

/* Those of databases that no worker may be in any more: they became templates, or take no connections. */
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

/* False when the server has no free worker slot. */
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
  worker.bgw_restart_time = BGW_NEVER_RESTART; /* the launcher restarts, with growing pauses */
  worker.bgw_notify_pid = MyProcPid;
  strlcpy(worker.bgw_library_name, "outbox", sizeof(worker.bgw_library_name));
  strlcpy(worker.bgw_function_name, "outbox_worker_main", sizeof(worker.bgw_function_name));
  snprintf(worker.bgw_name, BGW_MAXLEN, "outbox worker for database %u", arguments->database);
  strlcpy(worker.bgw_type, "outbox worker", BGW_MAXLEN);
  memcpy(worker.bgw_extra, arguments, sizeof(*arguments));

  MemoryContext previous = MemoryContextSwitchTo(TopMemoryContext);
  bool registered = RegisterDynamicBackgroundWorker(&worker, &child->handle);
  MemoryContextSwitchTo(previous);
  if (!registered)
    return false;
  child->used = true;
  child->stopping = child->dismissed = false;
  child->arguments = *arguments;
  child->started = now;
  return true;
}

/* Does the database go on expected_exits? */
static bool rests(DatabaseSlot *slot, Now now) {
  bool called = slot->idle_until <= now.moment || slot->idle_due <= now.wall ||
                slot->idle_settings != settings_idle_hash() || pg_atomic_read_u32(&slot->wakeup_requested) == 1;

  if (!called)
    return true;
  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
  if (slot->state == DATABASE_IDLE)
    database_change_state(slot, DATABASE_ACTIVE);
  LWLockRelease(shared_state()->lock);
  return false;
}

static void say_out_of_slots(int waiting, Moment since, Moment now) {
  if (said_out_of_slots || waiting == 0 || !moment_is_past(since, now, LONG_WAIT_MS))
    return;
  said_out_of_slots = true;
  ereport(WARNING,
          (errmsg("no free background worker slot for outbox"),
           errdetail("Databases that wait for a worker: %d, one of them for %ld s. While there is work in more "
                     "databases than slots they take turns.",
                     waiting, (long)((now.us - since.us) / USECS_PER_SEC)),
           errhint("Increase max_worker_processes.")));
}

/* Which databases wait for a free slot of the server's. */
static struct {
  int first;     /* this one is the next to get one */
  bool starving; /* in the last round a database was left without any worker */
} line;

/* What a round has found out so far, over all databases. */
typedef struct Round {
  Now now;
  long sleep_ms;      /* until the next round, at most */
  int looking;        /* workers that look into a database */
  bool full;          /* the server has no free slot */
  bool out_of_slots;  /* a worker that is wanted was not started */
  int waiting;        /* databases that have no worker for this reason … */
  Moment waits_since; /* … and since when the first of them waits */
} Round;

static void sleep_until(Round *round, Moment moment) {
  round->sleep_ms = Min(round->sleep_ms, milliseconds_until(round->now.moment, moment));
}

static int wanted_workers(const DatabaseSlot *slot) {
  if (!setting_enabled || slot->blocked_by_ddl_pid != 0)
    return 0;
  return database_has_outbox(slot->state) ? setting_workers : slot->state == DATABASE_UNKNOWN ? 1 : 0;
}

/* A session that died within the command for which its database's workers stand aside keeps them away no longer. */
static void forget_dead_session(DatabaseSlot *shared_slot, DatabaseSlot *slot) {
  if (slot->blocked_by_ddl_pid == 0 || kill(slot->blocked_by_ddl_pid, 0) == 0 || errno != ESRCH)
    return;
  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
  if (shared_slot->blocked_by_ddl_pid == slot->blocked_by_ddl_pid)
    shared_slot->blocked_by_ddl_pid = slot->blocked_by_ddl_pid = 0;
  LWLockRelease(shared_state()->lock);
}

/* Its last workers died, and the next one may not start yet. CREATE EXTENSION ends the pause. */
static bool is_paused(DatabaseSlot *shared_slot, const DatabaseSlot *slot, Round *round) {
  Pause *pause = pause_of(slot->oid);

  if (slot->state == DATABASE_ANNOUNCED) {
    LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
    if (shared_slot->state == DATABASE_ANNOUNCED)
      database_change_state(shared_slot, DATABASE_ACTIVE);
    LWLockRelease(shared_state()->lock);
    if (pause)
      pause->database = InvalidOid;
    return false;
  }
  if (pause == NULL || pause->until <= round->now.moment)
    return false;
  sleep_until(round, pause->until);
  return true;
}

/* Starts workers up to the first that cannot be started; a database gets its second one only when none waits for its
 * first. Returns how many there are then. */
static int start_missing(int i, Oid database, Running running, int wanted, Round *round) {
  const uint64 there = running.ours | running.others;

  for (int index = 0; index < wanted; index++) {
    WorkerArguments arguments = {database, index};
    if ((there >> index) & 1)
      continue;
    bool has_none = there == 0 && index == 0;
    bool last_in_line = line.starving && !has_none;
    if (!round->full && !last_in_line) {
      if (start_child(&arguments, round->now.moment))
        continue;
      line.first = i;
      round->full = true;
    }
    round->out_of_slots = true;
    if (has_none) {
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
  const int wanted = wanted_workers(&slot);
  if (wanted == 0) {
    worker_health_wanted(shared_slot, slot.oid, false, now);
    if (slot.state < DATABASE_OTHER_VERSION)
      stop_children(slot.oid);
    return;
  }
  if (slot.state == DATABASE_IDLE && rests(shared_slot, round->now)) {
    worker_health_wanted(shared_slot, slot.oid, false, now);
    sleep_until(round, slot.idle_until);
    if (slot.idle_due != DT_NOEND) /* the clock may be set */
      sleep_until(round, Min(moment_of_wall(round->now, slot.idle_due), moment_after(now, CLOCK_LOOK_MS)));
    return;
  }
  const Running running = running_workers(slot.oid);
  worker_health_wanted(shared_slot, slot.oid, !running.at_work, now);
  if (slot.state == DATABASE_UNKNOWN && running.ours != 0) {
    round->looking++;
    return;
  }
  if (running.others != 0)
    sleep_until(round, moment_after(now, LEFT_OVER_LOOK_MS));
  if (slot.workers > wanted)
    spread_shards(shared_slot, slot.oid, wanted);
  if (is_paused(shared_slot, &slot, round))
    return;
  if (slot.state == DATABASE_UNKNOWN && ++round->looking > MAX_LOOKING)
    return;
  const int present = start_missing(i, slot.oid, running, wanted, round);
  spread_shards(shared_slot, slot.oid, Max(present, 1)); /* no shard waits for a worker that cannot be */
}

/* Makes what runs what should run. Returns how long to sleep. */
static long reconcile(Now now) {
  SharedState *shared = shared_state();
  Round round = {};
  const int first = line.first;

  round.now = now;
  round.sleep_ms = RESCAN_MS;
  round.waits_since = now.moment;
  for (int step = 0; step < OUTBOX_MAX_DATABASES; step++)
    reconcile_database((first + step) % OUTBOX_MAX_DATABASES, &round);

  shared->out_of_slots = round.out_of_slots;
  if (round.out_of_slots)
    sleep_until(&round, moment_after(now.moment, OUT_OF_SLOTS_LOOK_MS));
  else
    said_out_of_slots = false;
  if (round.waiting > 0) {
    say_out_of_slots(round.waiting, round.waits_since, now.moment);
    slot_sharing_revoke(round.waiting, now.moment, &round.sleep_ms);
  } else if (line.starving) {
    round.sleep_ms = 0; /* now those that have one may have more */
  }
  line.starving = round.waiting > 0;
  shared->launcher_looked = now.moment;
  return round.sleep_ms;
}

void outbox_launcher_main(Datum) {
  pqsignal(SIGHUP, SignalHandlerForConfigReload);
  pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
  BackgroundWorkerUnblockSignals();
  BackgroundWorkerInitializeConnection(NULL, NULL, 0);
  settings_reread();
  announce_launcher();

  MemoryContext round = AllocSetContextCreate(TopMemoryContext, "outbox launcher round", ALLOCSET_DEFAULT_SIZES);
  Moment scanned_at = MOMENT_NONE;
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
      scanned_at = now.moment;
    }
    reap(now);
    long sleep_ms = reconcile(now);
    (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, sleep_ms, wait_event);
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
    if (ConfigReloadPending) {
      ConfigReloadPending = false;
      ProcessConfigFile(PGC_SIGHUP);
    }
  }
  proc_exit(1); /* 0 would unregister the launcher: pg_terminate_backend must not turn delivery off */
}
