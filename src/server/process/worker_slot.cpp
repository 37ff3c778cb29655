/*
 * worker_slot.cpp: on exit a slot is cleared only if it still belongs to this process. Before an idle worker exits,
 * it changes its needs_wakeup flag from 1 to 2 in one atomic step, and stays if a commit has cleared the flag before.
 * So each commit wakes either the worker or the launcher.
 */
#include "server/process/worker_slot.h"

#include "server/base/fault_point.h"
#include "server/base/settings.h"

#include <stdio.h>
#include <unistd.h>

extern "C" {
#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "utils/backend_status.h"
}

static WorkerSlot *own_slot = NULL;

/* The line of a step at debug2, written under the lock, so that the lines stand in the order of the steps
 * (test/protocols/trace.py). */
static void log_slot(const char *step) {
  Assert(LWLockHeldByMeInMode(shared_state()->lock, LW_EXCLUSIVE));
  ereport(DEBUG2, (errmsg_internal("outbox worker %d of database %u %s", own_slot->index, own_slot->database, step),
                   errhidestmt(true), errhidecontext(true)));
}

/* The launcher takes the exit of this worker for no failure. */
static void expect_exit(void) {
  Assert(LWLockHeldByMeInMode(shared_state()->lock, LW_EXCLUSIVE));
  DatabaseSlot *database = shared_database(own_slot->database, false);

  if (database)
    database->expected_exits |= UINT64CONST(1) << own_slot->index;
}

/* outbox.workers has become smaller than this worker's number. */
static bool is_superfluous(void) {
  Assert(LWLockHeldByMe(shared_state()->lock));
  DatabaseSlot *database = shared_database(own_slot->database, false);

  return database && own_slot->index >= database->workers;
}

static void give_up_slot(const char *step) {
  Assert(LWLockHeldByMeInMode(shared_state()->lock, LW_EXCLUSIVE));
  SharedState *shared = shared_state();

  if (own_slot && own_slot->pid == MyProcPid) {
    const bool has_successor = !is_superfluous();
    for (int i = 0; i < OUTBOX_MAX_SINKS; i++)
      if (shared->sinks[i].database == own_slot->database)
        shared_sink_worker_left(&shared->sinks[i], own_slot->index, has_successor);
    log_slot(step);
    Oid database = own_slot->database;
    own_slot->pid = 0;
    own_slot->database = InvalidOid;
    worker_change_state(own_slot, WORKER_FREE);
    OUTBOX_SIGNAL_POINT("slot.freed");
    shared_shards_changed(database); /* the other workers may take its shards */
  }
}

/* A worker that was told to end (SIGTERM, another outbox.cluster_name, a revoked slot) has not failed, however it
 * ends then. */
static void give_up_slot_at_exit(int, Datum) {
  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
  if (own_slot && own_slot->pid == MyProcPid && (ShutdownRequestPending || worker_slot_is_revoked()))
    expect_exit();
  give_up_slot("exits");
  LWLockRelease(shared_state()->lock);
}

bool worker_slot_take(const WorkerArguments *arguments) {
  Assert(own_slot == NULL && shared_state() != NULL);
  SharedState *shared = shared_state();
  WorkerSlot *free_slot = NULL;
  bool taken = false;

  before_shmem_exit(give_up_slot_at_exit, 0);
  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    WorkerSlot *slot = &shared->workers[i];
    if (slot->pid == 0) {
      free_slot = free_slot ? free_slot : slot;
      continue;
    }
    if (slot->database == arguments->database && slot->index == arguments->index)
      taken = true;
  }
  if (!taken && free_slot) {
    worker_change_state(free_slot, WORKER_STARTING);
    free_slot->pid = MyProcPid;
    free_slot->database = arguments->database;
    free_slot->index = arguments->index;
    free_slot->shards = free_slot->draining_others = {};
    free_slot->n_draining = 0;
    free_slot->latch = MyLatch;
    free_slot->started_at = free_slot->last_loop_at = GetCurrentTimestamp();
    free_slot->slot_taken = free_slot->last_loop = moment_now();
    free_slot->revoked_since = MOMENT_NONE;
    free_slot->memory = 0;
    free_slot->activity[0] = '\0';
    free_slot->routing_since = 0;
    free_slot->routing_error[0] = '\0';
    pg_atomic_write_u32(&free_slot->needs_wakeup, 0);
    pg_atomic_write_u32(&free_slot->rescan_requested, 1);
    own_slot = free_slot;
    log_slot("takes its slot");
    DatabaseSlot *database = shared_database(arguments->database, false);
    if (database) { /* a new worker reads all pending events, so earlier requests are done */
      pg_atomic_write_u32(&database->wakeup_requested, 0);
      database->expected_exits &= ~(UINT64CONST(1) << arguments->index); /* of a worker that no launcher has missed */
      if (arguments->index == 0)
        shared->health[database - shared->databases].wanted_since = MOMENT_NONE;
    }
    shared_shards_changed(arguments->database); /* other workers hand this one its shards */
  }
  LWLockRelease(shared->lock);
  return own_slot != NULL;
}

bool worker_slot_resign(void) {
  Assert(own_slot != NULL);
  SharedState *shared = shared_state();

  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  const bool superfluous = is_superfluous();
  if (superfluous)
    give_up_slot("resigns");
  LWLockRelease(shared->lock);
  OUTBOX_SIGNAL_POINT("slot.resigned");
  return superfluous;
}

/* Are all workers of the database present and idle? (The shards of a missing worker may have events.) Sets the
 * earliest times at which one has work. The lock must be held. */
static bool all_idle(const DatabaseSlot *database, Moment *until, TimestampTz *due) {
  Assert(LWLockHeldByMe(shared_state()->lock));
  const SharedState *shared = shared_state();
  int n = 0;

  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    const WorkerSlot *slot = &shared->workers[i];
    if (slot->pid == 0 || slot->database != database->oid)
      continue;
    if (slot->state != WORKER_IDLE)
      return false;
    *until = Min(*until, slot->idle_until);
    *due = Min(*due, slot->idle_due);
    n++;
  }
  return n == database->workers;
}

bool worker_slot_exit_idle(Moment until, TimestampTz due) {
  Assert(own_slot != NULL);
  SharedState *shared = shared_state();
  uint32 needs_wakeup = 1;

  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  DatabaseSlot *database = shared_database(own_slot->database, false);
  if (own_slot->state != WORKER_IDLE)
    worker_change_state(own_slot, WORKER_IDLE);
  own_slot->idle_until = until;
  own_slot->idle_due = due;
  bool may_exit = database != NULL && database_has_outbox(database->state) &&
                  (database->state == DATABASE_IDLE || all_idle(database, &until, &due));
  /* A commit after this exchange wakes the launcher. A commit before it has cleared the flag, so that the exchange
   * fails. */
  if (may_exit && pg_atomic_compare_exchange_u32(&own_slot->needs_wakeup, &needs_wakeup, 2)) {
    if (database->state != DATABASE_IDLE) {
      database->idle_until = until;
      database->idle_due = due;
      database->idle_settings = settings_idle_hash();
      database_change_state(database, DATABASE_IDLE);
    }
    worker_change_state(own_slot, WORKER_LEAVING);
    expect_exit();
  } else {
    may_exit = false;
  }
  LWLockRelease(shared->lock);
  OUTBOX_SIGNAL_POINT("idle.decided");
  if (may_exit)
    shared_wake_launcher();
  return may_exit;
}

void worker_slot_run(void) {
  Assert(own_slot != NULL && !IsTransactionState());
  if (own_slot->state == WORKER_RUNNING)
    return;
  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
  OUTBOX_SIGNAL_POINT("slot.runs");
  worker_change_state(own_slot, WORKER_RUNNING);
  LWLockRelease(shared_state()->lock);
}

void worker_slot_leave(void) {
  Assert(own_slot != NULL);
  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
  if (own_slot->state != WORKER_LEAVING)
    worker_change_state(own_slot, WORKER_LEAVING);
  LWLockRelease(shared_state()->lock);
}

bool worker_slots_are_scarce(void) {
  return shared_state()->out_of_slots;
}

bool worker_slot_is_revoked(void) {
  Assert(own_slot != NULL);
  return own_slot->revoked_since != MOMENT_NONE;
}

WorkerSlot *worker_slot(void) {
  return own_slot;
}

bool worker_slot_report_state(DatabaseState state) {
  SharedState *shared = shared_state();

  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  DatabaseSlot *slot = shared_database(MyDatabaseId, true);
  const bool has_outbox = database_has_outbox(state);
  bool changed = slot && slot->state != state && !(has_outbox && database_has_outbox(slot->state));
  if (changed)
    database_change_state(slot, has_outbox ? DATABASE_ANNOUNCED : state);
  LWLockRelease(shared->lock);
  OUTBOX_SIGNAL_POINT("database.reported");
  if (changed)
    shared_wake_launcher();
  return changed;
}

static bool reported_work = false;

void worker_slot_report_work(const char *activity) {
  reported_work = true;
  pgstat_report_activity(STATE_RUNNING, activity);
}

void worker_slot_report_activity(const char *activity) {
  Assert(own_slot != NULL && !IsTransactionState());
  if (!reported_work && strcmp(own_slot->activity, activity) == 0)
    return;
  reported_work = false;
  strlcpy(own_slot->activity, activity, sizeof(own_slot->activity));
  pgstat_report_activity(STATE_IDLE, activity);
}

void worker_slot_report_routing(TimestampTz since, const char *error) {
  SharedState *shared = shared_state();
  const int length = pg_mbcliplen(error, (int)strlen(error), sizeof(own_slot->routing_error) - 1);

  Assert(own_slot != NULL);
  if (own_slot->routing_since == since && strncmp(own_slot->routing_error, error, length + 1) == 0)
    return;
  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  own_slot->routing_since = since;
  memcpy(own_slot->routing_error, error, length);
  own_slot->routing_error[length] = '\0';
  LWLockRelease(shared->lock);
}

void worker_slot_refresh(Now now) {
  static Moment refreshed_at = MOMENT_NONE;

  own_slot->last_loop = now.moment;
  own_slot->last_loop_at = now.wall;
  if (!moment_is_past(refreshed_at, now.moment, 1000))
    return;
  refreshed_at = now.moment;
  long resident = 0, shared = 0; /* shared_buffers is not counted */
  FILE *file = fopen("/proc/self/statm", "r");
  if (file == NULL)
    return;
  if (fscanf(file, "%*s %ld %ld", &resident, &shared) == 2)
    own_slot->memory = (uint64)(resident - shared) * (uint64)sysconf(_SC_PAGESIZE);
  fclose(file);
}
