/*
 * worker_slot.cpp: a slot is cleared on exit only if it is still this process's. Before a worker leaves for
 * idleness it takes back its readiness to be woken in one atomic step and stays if a commit was quicker: no commit
 * falls between.
 */
#include "server/process/worker_slot.h"

#include "server/base/settings.h"

#include <stdio.h>
#include <unistd.h>

extern "C" {
#include "access/xact.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "utils/backend_status.h"
}

static WorkerSlot *mine = NULL;

/* The lock must be held exclusively. */
static void give_up_slot(void) {
  Assert(LWLockHeldByMeInMode(shared_state()->lock, LW_EXCLUSIVE));
  SharedState *shared = shared_state();

  if (mine && mine->pid == MyProcPid) {
    for (int i = 0; i < OUTBOX_MAX_SINKS; i++)
      if (shared->sinks[i].database == mine->database) {
        shared->sinks[i].in_flight[mine->index % OUTBOX_COUNTED_WORKERS] = 0;
        shared->sinks[i].low_watermark[mine->index % OUTBOX_COUNTED_WORKERS] = 0;
      }
    Oid database = mine->database;
    mine->pid = 0;
    mine->database = InvalidOid;
    worker_change_state(mine, WORKER_FREE);
    shared_shards_changed(database); /* its shards are free */
  }
}

static void give_up_slot_at_exit(int, Datum) {
  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
  give_up_slot();
  LWLockRelease(shared_state()->lock);
}

bool worker_slot_take(const WorkerArguments *arguments) {
  Assert(mine == NULL && shared_state() != NULL);
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
    pg_atomic_write_u32(&free_slot->needs_wakeup, 0);
    pg_atomic_write_u32(&free_slot->recalled, 1);
    pg_atomic_write_u32(&free_slot->slot_revoked, 0);
    mine = free_slot;
    DatabaseSlot *database = shared_database(arguments->database, false);
    if (database) { /* it looks at everything */
      pg_atomic_write_u32(&database->wakeup_requested, 0);
      shared->health[database - shared->databases].wanted_since = MOMENT_NONE;
    }
    shared_shards_changed(arguments->database); /* whoever has shards for us gives them now */
  }
  LWLockRelease(shared->lock);
  return mine != NULL;
}

bool worker_slot_resign(void) {
  SharedState *shared = shared_state();

  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  DatabaseSlot *database = shared_database(mine->database, false);
  bool needed = database == NULL || mine->index < database->workers;
  if (!needed)
    give_up_slot();
  LWLockRelease(shared->lock);
  return !needed;
}

/* Do all the database's workers have nothing to do? None is missing: its shards may have something. The lock must be
 * held. */
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
  SharedState *shared = shared_state();
  uint32 armed = 1;

  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  DatabaseSlot *database = shared_database(mine->database, false);
  if (mine->state != WORKER_IDLE)
    worker_change_state(mine, WORKER_IDLE);
  mine->idle_until = until;
  mine->idle_due = due;
  bool rest = database != NULL && database_has_outbox(database->state) &&
              (database->state == DATABASE_IDLE || all_idle(database, &until, &due));
  /* Whoever commits from here on calls the launcher; whoever did before has disarmed us. */
  if (rest && pg_atomic_compare_exchange_u32(&mine->needs_wakeup, &armed, 2)) {
    if (database->state != DATABASE_IDLE) {
      database->idle_until = until;
      database->idle_due = due;
      database->idle_settings = settings_idle_hash();
      database_change_state(database, DATABASE_IDLE);
    }
    worker_change_state(mine, WORKER_LEAVING);
    database->expected_exits |= UINT64CONST(1) << mine->index;
  } else {
    rest = false;
  }
  LWLockRelease(shared->lock);
  if (rest)
    shared_wake_launcher();
  return rest;
}

void worker_slot_run(void) {
  if (mine->state == WORKER_RUNNING)
    return;
  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
  worker_change_state(mine, WORKER_RUNNING);
  LWLockRelease(shared_state()->lock);
}

void worker_slot_leave(void) {
  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
  if (mine->state != WORKER_LEAVING)
    worker_change_state(mine, WORKER_LEAVING);
  LWLockRelease(shared_state()->lock);
}

void worker_slot_expect_exit(void) {
  SharedState *shared = shared_state();

  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  DatabaseSlot *database = shared_database(mine->database, false);
  if (database)
    database->expected_exits |= UINT64CONST(1) << mine->index;
  LWLockRelease(shared->lock);
}

bool worker_slots_are_scarce(void) {
  return shared_state()->out_of_slots;
}

bool worker_slot_is_revoked(void) {
  return pg_atomic_read_u32(&mine->slot_revoked) == 1;
}

WorkerSlot *worker_slot(void) {
  return mine;
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
  if (changed)
    shared_wake_launcher();
  return changed;
}

static bool working = false;

void worker_slot_report_work(const char *activity) {
  working = true;
  pgstat_report_activity(STATE_RUNNING, activity);
}

void worker_slot_report_activity(const char *activity) {
  Assert(!IsTransactionState());
  if (!working && strcmp(mine->activity, activity) == 0)
    return;
  working = false;
  strlcpy(mine->activity, activity, sizeof(mine->activity));
  pgstat_report_activity(STATE_IDLE, activity);
}

void worker_slot_refresh(Now now) {
  static Moment refreshed_at = MOMENT_NONE;

  mine->last_loop = now.moment;
  mine->last_loop_at = now.wall;
  if (!moment_is_past(refreshed_at, now.moment, 1000))
    return;
  refreshed_at = now.moment;
  long resident = 0, shared = 0; /* shared_buffers is not the worker's */
  FILE *file = fopen("/proc/self/statm", "r");
  if (file == NULL)
    return;
  if (fscanf(file, "%*s %ld %ld", &resident, &shared) == 2)
    mine->memory = (uint64)(resident - shared) * (uint64)sysconf(_SC_PAGESIZE);
  fclose(file);
}
