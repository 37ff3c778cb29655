/*
 * slot_sharing.cpp: a turn is two seconds at least. Before turns, six busy databases (or six with hanging sinks)
 * kept all slots and starved the others. A hanging sink's worker leaves when its requests have timed out.
 */
#include "server/process/slot_sharing.h"

#include "server/shmem/shared_state.h"

/* Long against the start of a worker (some 30 ms), short for whoever waits: with 50 busy databases and 6 slots each
 * is served every 18 seconds. */
static const int TURN_MS = 2000;
/* One that needs longer to leave, since an endpoint hangs, holds up no turn of another. */
static const int LEAVING_MS = 1000;
static const int LOOK_AGAIN_MS = 1000;

void slot_sharing_revoke(int waiting, Moment now, long *sleep_ms) {
  SharedState *shared = shared_state();
  int leaving = 0;

  *sleep_ms = Min(*sleep_ms, LOOK_AGAIN_MS);
  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    WorkerSlot *slot = &shared->workers[i];
    if (slot->pid == 0)
      continue;
    if (slot->revoked_since != MOMENT_NONE && !moment_is_past(slot->revoked_since, now, LEAVING_MS))
      leaving++;
    if (slot->state == WORKER_IDLE) /* it leaves by itself, now that others wait */
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
    Moment end = moment_after(oldest->slot_taken, TURN_MS);
    if (now < end) {
      *sleep_ms = Min(*sleep_ms, milliseconds_until(now, end));
      break;
    }
    oldest->revoked_since = now;
    pg_atomic_write_u32(&oldest->slot_revoked, 1);
    SetLatch(oldest->latch);
  }
  LWLockRelease(shared->lock);
}
