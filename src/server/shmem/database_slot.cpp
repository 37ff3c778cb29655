/* database_slot.cpp: finds a database's slot, and answers the questions of sessions at each commit. Slots do not
 * move, so a session searches for its own only once. */
#include "server/shmem/database_slot.h"

#include "server/base/fault_point.h"
#include "server/shmem/shared_state.h"

extern "C" {
#include "miscadmin.h"
}

[[maybe_unused]] static bool may_follow(DatabaseState state, DatabaseState next) {
  switch (state) {
  case DATABASE_FREE:
    return next == DATABASE_UNKNOWN;
  case DATABASE_UNKNOWN:
    return next == DATABASE_ANNOUNCED || next == DATABASE_OTHER_VERSION || next == DATABASE_NO_OUTBOX ||
           next == DATABASE_FREE;
  case DATABASE_ANNOUNCED:
    return next == DATABASE_ACTIVE || next == DATABASE_IDLE || next == DATABASE_OTHER_VERSION ||
           next == DATABASE_NO_OUTBOX || next == DATABASE_FREE;
  case DATABASE_ACTIVE:
    return next == DATABASE_ANNOUNCED || next == DATABASE_OTHER_VERSION || next == DATABASE_NO_OUTBOX ||
           next == DATABASE_IDLE || next == DATABASE_FREE;
  case DATABASE_IDLE:
    return next == DATABASE_ANNOUNCED || next == DATABASE_OTHER_VERSION || next == DATABASE_NO_OUTBOX ||
           next == DATABASE_ACTIVE || next == DATABASE_FREE;
  case DATABASE_OTHER_VERSION:
    return next == DATABASE_ANNOUNCED || next == DATABASE_NO_OUTBOX || next == DATABASE_FREE;
  case DATABASE_NO_OUTBOX:
    return next == DATABASE_ANNOUNCED || next == DATABASE_OTHER_VERSION || next == DATABASE_FREE;
  }
  return false;
}

void database_change_state(DatabaseSlot *slot, DatabaseState next) {
  Assert(LWLockHeldByMeInMode(shared_state()->lock, LW_EXCLUSIVE));
  Assert(may_follow(slot->state, next));
  OUTBOX_STATE_CHANGES("DatabaseState", slot->state, next);
  slot->state = next;
}

DatabaseSlot *shared_database(Oid database, bool create) {
  SharedState *shared = shared_state();
  Assert(!create || LWLockHeldByMeInMode(shared->lock, LW_EXCLUSIVE));
  DatabaseSlot *free_slot = NULL;

  for (int i = 0; i < OUTBOX_MAX_DATABASES; i++) {
    DatabaseSlot *slot = &shared->databases[i];
    if (slot->oid == database)
      return slot;
    if (slot->oid == InvalidOid && free_slot == NULL)
      free_slot = slot;
  }
  if (!create || free_slot == NULL)
    return NULL;
  free_slot->oid = database;
  database_change_state(free_slot, DATABASE_UNKNOWN);
  free_slot->blocked_by_ddl_pid = 0;
  free_slot->workers = 0;
  free_slot->expected_exits = 0;
  pg_atomic_write_u32(&free_slot->wakeup_requested, 0);
  memset(&shared->health[free_slot - shared->databases], 0, sizeof(WorkerHealth));
  return free_slot;
}

/* A slot does not move, so its address is kept. It can be reused only after this database was dropped. */
static DatabaseSlot *my_database(void) {
  static DatabaseSlot *own_slot = NULL;

  if (own_slot == NULL || own_slot->oid != MyDatabaseId)
    own_slot = shared_database(MyDatabaseId, false);
  return own_slot;
}

void shared_request_workers(void) {
  DatabaseSlot *database = my_database();

  if (database == NULL || pg_atomic_exchange_u32(&database->wakeup_requested, 1) == 0)
    shared_wake_launcher();
}

bool shared_is_idle(void) {
  const DatabaseSlot *database = my_database();

  return database != NULL && database->state == DATABASE_IDLE;
}

pg_atomic_uint64 *shared_drawn(Oid sequence) {
  SharedState *shared = shared_state();
  Assert(shared == NULL || !LWLockHeldByMe(shared->lock));
  const DatabaseSlot *database = shared ? my_database() : NULL;

  if (database == NULL)
    return NULL;
  DrawnPosition *drawn = &shared->drawn[database - shared->databases];
  if (drawn->sequence != sequence) { /* after DROP and CREATE EXTENSION, or in a reused slot */
    LWLockAcquire(shared->lock, LW_EXCLUSIVE);
    if (drawn->sequence != sequence) {
      pg_atomic_write_u64(&drawn->highest, 0);
      pg_write_barrier();
      drawn->sequence = sequence;
    }
    LWLockRelease(shared->lock);
  }
  return &drawn->highest;
}
