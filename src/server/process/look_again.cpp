/* look_again.cpp: chooses databases under the lock; the launcher starts their workers, a few at a time. */
#include "server/process/look_again.h"

/* Databases without the extension that are chosen at a rescan, so that thousands cost little. */
static const int MAX_TURNS = 10;

LookAgain &look_again(void) {
  static LookAgain the_object;

  return the_object;
}

void LookAgain::choose(bool all) {
  SharedState *shared = shared_state();
  int turns = MAX_TURNS, last = next_;

  LWLockAcquire(shared->lock, LW_SHARED);
  for (int step = 0; step < OUTBOX_MAX_DATABASES; step++) {
    const int i = (next_ + step) % OUTBOX_MAX_DATABASES;
    DatabaseSlot *slot = &shared->databases[i];
    chosen_[i] = false;
    if (slot->oid == InvalidOid || slot->state < DATABASE_OTHER_VERSION)
      continue;
    chosen_[i] =
        all || slot->state == DATABASE_OTHER_VERSION || pg_atomic_exchange_u32(&slot->wakeup_requested, 0) == 1;
    if (chosen_[i] || turns == 0)
      continue;
    chosen_[i] = true;
    turns--;
    last = i + 1;
  }
  LWLockRelease(shared->lock);
  next_ = last % OUTBOX_MAX_DATABASES;
}

void LookAgain::looked(Oid database) {
  LWLockAcquire(shared_state()->lock, LW_SHARED);
  const DatabaseSlot *slot = shared_database(database, false);
  if (slot)
    chosen_[slot - shared_state()->databases] = false;
  LWLockRelease(shared_state()->lock);
}
