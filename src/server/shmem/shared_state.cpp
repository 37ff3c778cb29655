#include "server/shmem/shared_state.h"

#include <math.h>
#include <signal.h>

extern "C" {
#include "mb/pg_wchar.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
}

static SharedState *state = NULL;
static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

static void request_memory(void) {
  if (previous_request_hook)
    previous_request_hook();
  RequestAddinShmemSpace(MAXALIGN(sizeof(SharedState)));
  RequestNamedLWLockTranche("outbox", 1);
}

static void attach_memory(void) {
  bool found;

  if (previous_startup_hook)
    previous_startup_hook();
  LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
  state = (SharedState *)ShmemInitStruct("outbox", sizeof(SharedState), &found);
  if (!found) {
    memset((void *)state, 0, sizeof(SharedState));
    state->lock = &GetNamedLWLockTranche("outbox")->lock;
    state->made_at = GetCurrentTimestamp();
    for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
      pg_atomic_init_u32(&state->workers[i].armed, 0);
      pg_atomic_init_u32(&state->workers[i].recalled, 0);
      pg_atomic_init_u32(&state->workers[i].lanes_changed, 0);
      pg_atomic_init_u32(&state->workers[i].turn_is_over, 0);
    }
    pg_atomic_init_u32(&state->n_probes, 0);
    for (int i = 0; i < OUTBOX_MAX_DATABASES; i++)
      pg_atomic_init_u32(&state->databases[i].called, 0);
  }
  LWLockRelease(AddinShmemInitLock);
}

void shared_state_request(void) {
  Assert(process_shared_preload_libraries_in_progress);
  previous_request_hook = shmem_request_hook;
  shmem_request_hook = request_memory;
  previous_startup_hook = shmem_startup_hook;
  shmem_startup_hook = attach_memory;
}

SharedState *shared_state(void) {
  return state;
}

DatabaseSlot *shared_database(Oid database, bool create) {
  Assert(!create || LWLockHeldByMeInMode(state->lock, LW_EXCLUSIVE));
  DatabaseSlot *free_slot = NULL;

  for (int i = 0; i < OUTBOX_MAX_DATABASES; i++) {
    DatabaseSlot *slot = &state->databases[i];
    if (slot->oid == database)
      return slot;
    if (slot->oid == InvalidOid && free_slot == NULL)
      free_slot = slot;
  }
  if (!create || free_slot == NULL)
    return NULL;
  free_slot->oid = database;
  free_slot->state = DATABASE_UNKNOWN;
  free_slot->fresh = false;
  free_slot->aside_for = 0;
  free_slot->workers = 0;
  free_slot->at_rest = false;
  free_slot->resting = 0;
  pg_atomic_write_u32(&free_slot->called, 0);
  memset(&state->health[free_slot - state->databases], 0, sizeof(WorkerHealth));
  return free_slot;
}

SinkStats *shared_sink_stats(Oid database, Oid server, bool create) {
  SinkStats *found = NULL, *free_slot = NULL;

  if (state == NULL)
    return NULL;
  Assert(!LWLockHeldByMe(state->lock));
  LWLockAcquire(state->lock, LW_EXCLUSIVE);
  for (int i = 0; i < OUTBOX_MAX_SINKS && found == NULL; i++) {
    SinkStats *stats = &state->sinks[i];
    if (stats->database == database && stats->server == server)
      found = stats;
    else if (stats->database == InvalidOid && free_slot == NULL)
      free_slot = stats;
  }
  if (found == NULL && create && free_slot != NULL) {
    memset((void *)free_slot, 0, sizeof(SinkStats));
    free_slot->database = database;
    free_slot->server = server;
    found = free_slot;
  }
  LWLockRelease(state->lock);
  return found;
}

void shared_sink_error(SinkStats *stats, const char *error, TimestampTz at) {
  Assert(!LWLockHeldByMe(state->lock));
  int length = pg_mbcliplen(error, strlen(error), sizeof(stats->last_error) - 1);

  LWLockAcquire(state->lock, LW_EXCLUSIVE);
  memcpy(stats->last_error, error, length);
  stats->last_error[length] = '\0';
  stats->last_error_at = at;
  LWLockRelease(state->lock);
}

void shared_sink_rate(SinkStats *stats, uint64 delivered, Moment now) {
  Assert(LWLockHeldByMeInMode(state->lock, LW_EXCLUSIVE));
  double seconds = (now.us - stats->rate_at.us) / 1000000.0;

  if (seconds <= 0)
    return;
  double weight = stats->rate_at == MOMENT_NONE ? 1 : 1 - exp(-seconds / 10);
  double rate = delivered / Max(seconds, 0.001);
  stats->rate = stats->rate_at == MOMENT_NONE ? 0 : stats->rate + weight * (rate - stats->rate);
  stats->rate_at = now;
}

void shared_sink_reset(Oid database, Oid server) {
  Assert(!LWLockHeldByMe(state->lock));
  LWLockAcquire(state->lock, LW_EXCLUSIVE);
  for (int i = 0; i < OUTBOX_MAX_SINKS; i++) {
    SinkStats *stats = &state->sinks[i];
    if (stats->database != database || (OidIsValid(server) && stats->server != server))
      continue;
    stats->delivered = stats->retried = stats->failed = stats->redriven_late = 0;
    stats->last_error[0] = '\0';
    stats->last_error_at = 0;
    stats->rate = 0;
    stats->rate_at = MOMENT_NONE;
    memset(stats->failures, 0, sizeof(stats->failures));
    memset(&stats->latency, 0, sizeof(stats->latency));
    stats->since = GetCurrentTimestamp();
  }
  LWLockRelease(state->lock);
}

void shared_sink_forget(Oid database, Oid server) {
  Assert(!LWLockHeldByMe(state->lock));
  LWLockAcquire(state->lock, LW_EXCLUSIVE);
  for (int i = 0; i < OUTBOX_MAX_SINKS; i++)
    if (state->sinks[i].database == database && (server == InvalidOid || state->sinks[i].server == server))
      state->sinks[i].database = InvalidOid;
  LWLockRelease(state->lock);
}

/* Slots do not move; this one may have become another database's only when ours is gone. */
static DatabaseSlot *my_database(void) {
  static DatabaseSlot *mine = NULL;

  if (mine == NULL || mine->oid != MyDatabaseId)
    mine = shared_database(MyDatabaseId, false);
  return mine;
}

void shared_call_workers(void) {
  DatabaseSlot *database = my_database();

  if (database == NULL || pg_atomic_exchange_u32(&database->called, 1) == 0)
    shared_wake_launcher();
}

bool shared_at_rest(void) {
  const DatabaseSlot *database = my_database();

  return database != NULL && database->at_rest;
}

pg_atomic_uint64 *shared_drawn(Oid sequence) {
  const DatabaseSlot *database = state ? my_database() : NULL;

  if (database == NULL)
    return NULL;
  DrawnPosition *drawn = &state->drawn[database - state->databases];
  if (drawn->sequence != sequence) { /* made anew by DROP and CREATE EXTENSION, or the slot was another database's */
    LWLockAcquire(state->lock, LW_EXCLUSIVE);
    if (drawn->sequence != sequence) {
      pg_atomic_write_u64(&drawn->highest, 0);
      pg_write_barrier();
      drawn->sequence = sequence;
    }
    LWLockRelease(state->lock);
  }
  return &drawn->highest;
}

void shared_wake_launcher(void) {
  Latch *latch = state ? state->launcher_latch : NULL;

  if (latch)
    SetLatch(latch);
}

void shared_lanes_changed(Oid database) {
  Assert(LWLockHeldByMe(state->lock));
  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    WorkerSlot *slot = &state->workers[i];
    if (slot->pid == 0 || slot->database != database)
      continue;
    pg_atomic_write_u32(&slot->lanes_changed, 1);
    SetLatch(slot->latch);
  }
}

int shared_stop_workers(Oid database) {
  int n = 0;

  LWLockAcquire(state->lock, LW_SHARED);
  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    WorkerSlot *slot = &state->workers[i];
    if (slot->pid != 0 && slot->database == database) {
      kill(slot->pid, SIGTERM);
      n++;
    }
  }
  LWLockRelease(state->lock);
  return n;
}
