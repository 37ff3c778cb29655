/*
 * database_scan.cpp: the launcher reads pg_database, which is shared, without connecting to a database. Templates,
 * databases that allow no connections and invalid ones are left out.
 */
#include "server/process/database_scan.h"

#include "server/base/fault_point.h"
#include "server/shmem/shared_state.h"
#include "server/storage/crash_record.h"

extern "C" {
#include "access/genam.h"
#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "utils/snapmgr.h"
}

void scan_databases(void) {
  SharedState *shared = shared_state();
  Assert(shared->launcher_pid == MyProcPid && !IsTransactionState());
  bool *present = palloc0_array(bool, OUTBOX_MAX_DATABASES);
  Oid *dropped = palloc_array(Oid, OUTBOX_MAX_DATABASES);
  int n_dropped = 0;
  bool full = false;
  HeapTuple tuple;

  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  shared->rescan = false; /* before the snapshot, so that a later CREATE DATABASE causes another scan */
  LWLockRelease(shared->lock);
  StartTransactionCommand();
  (void)GetTransactionSnapshot();
  Relation relation = table_open(DatabaseRelationId, AccessShareLock);
  TableScanDesc scan = table_beginscan_catalog(relation, 0, NULL);
  while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL) {
    Form_pg_database database = (Form_pg_database)GETSTRUCT(tuple);
    if (database->datistemplate || !database->datallowconn || database->datconnlimit == OUTBOX_INVALID_DATABASE)
      continue;
    LWLockAcquire(shared->lock, LW_EXCLUSIVE);
    DatabaseSlot *slot = shared_database(database->oid, true);
    if (slot)
      present[slot - shared->databases] = true;
    LWLockRelease(shared->lock);
    if (slot == NULL && !full)
      ereport(WARNING, (errmsg("outbox serves at most %d databases", OUTBOX_MAX_DATABASES)));
    full = full || slot == NULL; /* goes on, because later databases may have slots already */
  }
  table_endscan(scan);
  table_close(relation, AccessShareLock);
  CommitTransactionCommand();
  OUTBOX_FAULT_POINT("launcher.scanned");

  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  for (int i = 0; i < OUTBOX_MAX_DATABASES; i++)
    if (shared->databases[i].oid != InvalidOid && !present[i] && shared->databases[i].blocked_by_ddl_pid == 0) {
      dropped[n_dropped++] = shared->databases[i].oid;
      shared->databases[i].oid = InvalidOid;
      database_change_state(&shared->databases[i], DATABASE_FREE);
    }
  LWLockRelease(shared->lock);
  for (int i = 0; i < n_dropped; i++) {
    shared_sink_forget(dropped[i], InvalidOid);
    crash_record_remove(dropped[i]);
  }
  pfree(dropped);
  pfree(present);
}
