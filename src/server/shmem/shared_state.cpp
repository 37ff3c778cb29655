/*
 * shared_state.cpp: one LWLock guards the shared memory. It is held for short reads and changes, and never across I/O
 * or an SQL statement.
 */
#include "server/shmem/shared_state.h"

extern "C" {
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
      pg_atomic_init_u32(&state->workers[i].needs_wakeup, 0);
      pg_atomic_init_u32(&state->workers[i].rescan_requested, 0);
      pg_atomic_init_u32(&state->workers[i].shards_changed, 0);
    }
    pg_atomic_init_u32(&state->n_probes, 0);
    for (int i = 0; i < OUTBOX_MAX_DATABASES; i++)
      pg_atomic_init_u32(&state->databases[i].wakeup_requested, 0);
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

void shared_wake_launcher(void) {
  Latch *latch = state ? state->launcher_latch : NULL;

  if (latch)
    SetLatch(latch);
}
