/*
 * rename_lock.cpp: a wait that times out is an error, so each attempt is a subtransaction. It waits for one table
 * only while it has not locked the other: others lock them in either order, and there must be no deadlock.
 */
#include "server/catalog/rename_lock.h"

#include "server/storage/owner_sql.h"

extern "C" {
#include "access/xact.h"
#include "catalog/namespace.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"
}

/* How long others may wait behind it. The transactions of most applications are shorter. */
static const char *const QUEUED = "100ms";
static const int FIRST_PAUSE_MS = 50;
static const int LAST_PAUSE_MS = 1000;

static bool lock_at_once(const Oid tables[2]) {
  for (int first = 0; first < 2; first++) {
    LockRelationOid(tables[first], ExclusiveLock);
    if (ConditionalLockRelationOid(tables[1 - first], ExclusiveLock))
      return true;
    UnlockRelationOid(tables[first], ExclusiveLock);
  }
  return false;
}

static bool try_lock(const Oid tables[2]) {
  const MemoryContext context = CurrentMemoryContext;
  const ResourceOwner owner = CurrentResourceOwner;
  volatile bool locked = false;

  BeginInternalSubTransaction(NULL);
  MemoryContextSwitchTo(context);
  PG_TRY();
  {
    locked = lock_at_once(tables);
    ReleaseCurrentSubTransaction();
  }
  PG_CATCH();
  {
    MemoryContextSwitchTo(context);
    ErrorData *error = CopyErrorData();
    FlushErrorState();
    RollbackAndReleaseCurrentSubTransaction();
    MemoryContextSwitchTo(context);
    CurrentResourceOwner = owner;
    if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
      ReThrowError(error);
    FreeErrorData(error);
    locked = false;
  }
  PG_END_TRY();
  MemoryContextSwitchTo(context);
  CurrentResourceOwner = owner;
  return locked;
}

static void pause_for(int ms) {
  (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms, PG_WAIT_EXTENSION);
  ResetLatch(MyLatch);
  CHECK_FOR_INTERRUPTS();
}

bool rename_lock_tables(int timeout_ms) {
  Assert(IsTransactionState());
  const Oid tables[] = {outbox_pending_oid(), get_relname_relid("events_failed", get_namespace_oid("outbox", false))};
  const TimestampTz start = GetCurrentTimestamp();
  const int level = NewGUCNestLevel();
  bool locked;

  (void)set_config_option("lock_timeout", QUEUED, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
  for (int pause_ms = FIRST_PAUSE_MS;; pause_ms = Min(2 * pause_ms, LAST_PAUSE_MS)) {
    locked = try_lock(tables);
    if (locked || TimestampDifferenceExceeds(start, GetCurrentTimestamp(), timeout_ms))
      break;
    pause_for(pause_ms);
  }
  AtEOXact_GUC(true, level);
  return locked;
}
