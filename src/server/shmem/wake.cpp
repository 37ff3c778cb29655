/*
 * wake.cpp: the commit callback sets the worker's latch once per round of its loop: while the worker is awake,
 * further commits leave it alone. A commit that finds no running worker wakes the launcher.
 */
#include "server/shmem/wake.h"

#include "server/base/fault_point.h"
#include "server/base/sql_function.h"
#include "server/shmem/shared_state.h"

extern "C" {
#include "access/xact.h"
#include "replication/logicalworker.h"
#include "utils/resowner.h"
}

static bool wake_workers_wanted = false;
static bool rescan_wanted = false;
static bool announce_wanted = false;
static bool sinks_changed = false;

/* As a commit callback it runs after the transaction is visible to others: it must not fail and must not allocate.
 * test/protocols/idle.pml shows that no commit is missed, and what each condition is for. */
void wake_workers(void) {
  SharedState *shared = shared_state();
  bool reached_worker = false, one_exits = false;

  Assert(shared != NULL);

  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    WorkerSlot *slot = &shared->workers[i];
    if (slot->database != MyDatabaseId || slot->pid == 0)
      continue;
    if (rescan_wanted)
      pg_atomic_write_u32(&slot->rescan_requested, 1);
    /* A worker sets this flag before it takes its snapshot, so any number of commits set its latch once per round. */
    uint32 needs_wakeup = pg_atomic_exchange_u32(&slot->needs_wakeup, 0);
    if (needs_wakeup == 1)
      SetLatch(slot->latch);
    /* A worker with 2 is exiting; the event may be of its shards, and the other workers leave those to it. */
    if (needs_wakeup == 2)
      one_exits = true;
    else if (slot->database == MyDatabaseId) /* else the slot was reused for another database meanwhile */
      reached_worker = true;
  }
  if (!reached_worker || one_exits || shared_is_idle())
    shared_request_workers();
}

/* A logical replication worker commits a prepared transaction of its publisher without a statement, in a transaction
 * of its own that has no ID. Few of its other transactions have none. */
static bool may_commit_prepared(void) {
  return IsLogicalWorker() && !TransactionIdIsValid(GetTopTransactionIdIfAny());
}

static void at_end_of_transaction(XactEvent event, void *) {
  if (event == XACT_EVENT_COMMIT && may_commit_prepared())
    wake_workers_wanted = rescan_wanted = true;
  if (!wake_workers_wanted && !announce_wanted)
    return;
  if (event == XACT_EVENT_COMMIT && shared_state() != NULL) {
    OUTBOX_SIGNAL_POINT("wake.committed");
    if (wake_workers_wanted)
      wake_workers();
    if (announce_wanted) {
      LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
      DatabaseSlot *slot = shared_database(MyDatabaseId, true);
      if (slot && slot->state != DATABASE_ANNOUNCED)
        database_change_state(slot, DATABASE_ANNOUNCED);
      LWLockRelease(shared_state()->lock);
      shared_wake_launcher();
    }
  }
  if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
    wake_workers_wanted = rescan_wanted = announce_wanted = false;
}

/* The transaction callback runs before the commit sends its catalog invalidations. A worker woken then could read its
 * sinks too early and sleep again. This phase comes after them. */
static void at_release(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *) {
  if (!sinks_changed || !is_top_level || phase != RESOURCE_RELEASE_AFTER_LOCKS)
    return;
  sinks_changed = false;
  OUTBOX_SIGNAL_POINT("wake.sinks_changed");
  if (is_commit && shared_state() != NULL)
    wake_workers();
}

void wake_init(void) {
  RegisterXactCallback(at_end_of_transaction, NULL);
  RegisterResourceReleaseCallback(at_release, NULL);
}

void wake_at_commit(void) {
  Assert(IsTransactionState());
  wake_workers_wanted = true;
}

void wake_when_sinks_changed(void) {
  sinks_changed = true;
}

void request_rescan_at_commit(void) {
  Assert(IsTransactionState());
  wake_workers_wanted = rescan_wanted = true;
}

void wake_launcher_at_commit(void) {
  Assert(IsTransactionState());
  announce_wanted = true;
}

/* Called at the end of the install and upgrade scripts: tells the launcher about the database. */
SQL_FUNCTION(outbox_announce) {
  if (shared_state() == NULL)
    ereport(NOTICE,
            (errmsg("events are enqueued but not delivered, because outbox is not in shared_preload_libraries"),
             errhint("Add outbox to shared_preload_libraries and restart the server. See outbox.doctor().")));
  wake_launcher_at_commit();
  PG_RETURN_VOID();
}
