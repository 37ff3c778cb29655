/*
 * catalog_row.cpp: reads with SnapshotSelf: the catalog cache does not show rows of the running command yet.
 */
#include "server/base/catalog_row.h"

extern "C" {
#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"
}

HeapTuple catalog_row_as_written(Oid catalog, Oid index, AttrNumber key_column, Oid oid) {
  Assert(IsTransactionState());
  Relation relation = table_open(catalog, AccessShareLock);
  ScanKeyData key;
  ScanKeyInit(&key, key_column, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(oid));
  SysScanDesc scan = systable_beginscan(relation, index, true, SnapshotSelf, 1, &key);
  HeapTuple tuple = systable_getnext(scan);

  if (HeapTupleIsValid(tuple))
    tuple = heap_copytuple(tuple);
  systable_endscan(scan);
  table_close(relation, AccessShareLock);
  return tuple;
}
