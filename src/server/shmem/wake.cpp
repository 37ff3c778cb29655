/*
 * wake.cpp: the commit callback sets the worker's latch once per round of its loop: while the worker is awake
 * further commits do nothing. The commit that finds no worker listening calls the launcher.
 */
#include "server/shmem/wake.h"

#include "server/base/sql_function.h"
#include "server/shmem/shared_state.h"

extern "C" {
#include "access/xact.h"
#include "replication/logicalworker.h"
#include "utils/resowner.h"
}

static bool marked = false;
static bool marked_recalled = false;
static bool marked_created = false;
static bool marked_sinks = false;

/* Runs after the transaction is visible to others. Nothing here may fail or allocate. */
void wake_workers(void) {
  SharedState *shared = shared_state();
  bool heard = false;

  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    WorkerSlot *slot = &shared->workers[i];
    if (slot->database != MyDatabaseId || slot->pid == 0)
      continue;
    if (marked_recalled)
      pg_atomic_write_u32(&slot->recalled, 1);
    /* A worker arms itself before it takes its snapshot: one latch per round, however many commits. */
    uint32 armed = pg_atomic_exchange_u32(&slot->needs_wakeup, 0);
    if (armed == 1)
      SetLatch(slot->latch);
    /* It leaves, or was another's by then. */
    heard = heard || (armed != 2 && slot->database == MyDatabaseId);
  }
  if (!heard || shared_is_idle())
    shared_request_workers();
}

/* A logical replication worker commits what its publisher prepared without a statement: in a transaction that has
 * no id, of which there are few. */
static bool may_commit_prepared(void) {
  return IsLogicalWorker() && !TransactionIdIsValid(GetTopTransactionIdIfAny());
}

static void at_end_of_transaction(XactEvent event, void *) {
  if (event == XACT_EVENT_COMMIT && may_commit_prepared())
    marked = marked_recalled = true;
  if (!marked && !marked_created)
    return;
  if (event == XACT_EVENT_COMMIT && shared_state() != NULL) {
    if (marked)
      wake_workers();
    if (marked_created) {
      LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
      DatabaseSlot *slot = shared_database(MyDatabaseId, true);
      if (slot && slot->state != DATABASE_ANNOUNCED)
        database_change_state(slot, DATABASE_ANNOUNCED);
      LWLockRelease(shared_state()->lock);
      shared_wake_launcher();
    }
  }
  if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
    marked = marked_recalled = marked_created = false;
}

/* The callbacks above run before the catalog invalidations are sent, these phases after: a worker that was woken
 * earlier could look at its sinks too soon, and sleep on. */
static void at_release(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *) {
  if (!marked_sinks || !is_top_level || phase != RESOURCE_RELEASE_AFTER_LOCKS)
    return;
  marked_sinks = false;
  if (is_commit && shared_state() != NULL)
    wake_workers();
}

void wake_init(void) {
  RegisterXactCallback(at_end_of_transaction, NULL);
  RegisterResourceReleaseCallback(at_release, NULL);
}

void wake_at_commit(void) {
  Assert(IsTransactionState());
  marked = true;
}

void wake_when_sinks_changed(void) {
  marked_sinks = true;
}

void request_rescan_at_commit(void) {
  Assert(IsTransactionState());
  marked = marked_recalled = true;
}

void wake_launcher_at_commit(void) {
  Assert(IsTransactionState());
  marked_created = true;
}

/* Called at the end of the install and upgrade scripts: the launcher then knows the database. */
SQL_FUNCTION(outbox_announce) {
  if (shared_state() == NULL)
    ereport(NOTICE,
            (errmsg("outbox is not preloaded: events are enqueued, and nobody delivers them"),
             errhint("Add outbox to shared_preload_libraries and restart the server; outbox.doctor() tells more.")));
  wake_launcher_at_commit();
  PG_RETURN_VOID();
}
