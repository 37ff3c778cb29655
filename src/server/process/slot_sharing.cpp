/*
 * slot_sharing.cpp: a worker keeps its slot for at least 2 s. Measured with six busy databases, six slots and one
 * event in each of three other databases: it was delivered after 0.1 to 1.9 s. Without sharing no event was delivered
 * within a minute: each waited until a backlog, which may never end, was done. With outbox.worker_idle_timeout = 0 it
 * would wait for ever, even for workers without events. The worker of a hanging sink exits when its requests have
 * timed out.
 */
#include "server/process/slot_sharing.h"

#include "server/shmem/shared_state.h"

/* Much longer than the start of a worker (about 30 ms), but short for waiting databases: with 50 busy databases and 6
 * slots each gets a slot every 18 s. */
static const int MIN_RUN_MS = 2000;
/* A worker that takes longer to exit, since an endpoint hangs, no longer counts: another slot is revoked. */
static const int EXIT_MS = 1000;
static const int CHECK_INTERVAL_MS = 1000;

/* A database whose first worker goes has to wait for another one: the others leave before it. */
static WorkerSlot *last_of_database(WorkerSlot *of) {
  WorkerSlot *last = of;

  for (WorkerSlot &slot : shared_state()->workers)
    if (slot.pid != 0 && slot.database == of->database && slot.revoked_since == MOMENT_NONE &&
        slot.index > last->index)
      last = &slot;
  return last;
}

void slot_sharing_revoke(int waiting, Moment now, long *sleep_ms) {
  SharedState *shared = shared_state();
  Assert(shared->launcher_pid == MyProcPid && !LWLockHeldByMe(shared->lock));
  int leaving = 0;

  *sleep_ms = Min(*sleep_ms, CHECK_INTERVAL_MS);
  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    WorkerSlot *slot = &shared->workers[i];
    if (slot->pid == 0)
      continue;
    if (slot->revoked_since != MOMENT_NONE && !moment_is_past(slot->revoked_since, now, EXIT_MS))
      leaving++;
    if (slot->state == WORKER_IDLE) /* wakes it, because an idle worker exits at once when others wait */
      SetLatch(slot->latch);
  }
  for (; leaving < waiting; leaving++) {
    WorkerSlot *oldest = NULL;
    for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
      WorkerSlot *slot = &shared->workers[i];
      if (slot->pid != 0 && slot->revoked_since == MOMENT_NONE &&
          (oldest == NULL || slot->slot_taken < oldest->slot_taken))
        oldest = slot;
    }
    if (oldest == NULL)
      break;
    Moment end = moment_after(oldest->slot_taken, MIN_RUN_MS);
    if (now < end) {
      *sleep_ms = Min(*sleep_ms, milliseconds_until(now, end));
      break;
    }
    WorkerSlot *last = last_of_database(oldest);
    last->revoked_since = now;
    SetLatch(last->latch);
  }
  LWLockRelease(shared->lock);
}
