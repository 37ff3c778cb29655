/* worker_slots.cpp: changes a worker's state, and signals all workers of a database. */
#include "server/shmem/worker_slots.h"

#include "server/base/fault_point.h"
#include "server/shmem/shared_state.h"

#include <signal.h>

[[maybe_unused]] static bool may_follow(WorkerState state, WorkerState next) {
  switch (state) {
  case WORKER_FREE:
    return next == WORKER_STARTING;
  case WORKER_STARTING:
    return next == WORKER_RUNNING || next == WORKER_FREE;
  case WORKER_RUNNING:
    return next == WORKER_IDLE || next == WORKER_LEAVING || next == WORKER_FREE;
  case WORKER_IDLE:
    return next == WORKER_RUNNING || next == WORKER_LEAVING || next == WORKER_FREE;
  case WORKER_LEAVING:
    return next == WORKER_FREE;
  }
  return false;
}

void worker_change_state(WorkerSlot *slot, WorkerState next) {
  Assert(LWLockHeldByMeInMode(shared_state()->lock, LW_EXCLUSIVE));
  Assert(may_follow(slot->state, next));
  OUTBOX_STATE_CHANGES("WorkerState", slot->state, next);
  slot->state = next;
}

void shared_shards_changed(Oid database) {
  Assert(LWLockHeldByMe(shared_state()->lock));
  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    WorkerSlot *slot = &shared_state()->workers[i];
    if (slot->pid == 0 || slot->database != database)
      continue;
    pg_atomic_write_u32(&slot->shards_changed, 1);
    SetLatch(slot->latch);
  }
}

int shared_stop_workers(Oid database) {
  SharedState *shared = shared_state();
  int n = 0;

  Assert(!LWLockHeldByMe(shared->lock));
  LWLockAcquire(shared->lock, LW_SHARED);
  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    WorkerSlot *slot = &shared->workers[i];
    if (slot->pid != 0 && slot->database == database) {
      kill(slot->pid, SIGTERM);
      n++;
    }
  }
  LWLockRelease(shared->lock);
  return n;
}
