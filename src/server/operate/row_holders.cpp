/* row_holders.cpp: for outbox.doctor(): returns the transactions that have locked a row of outbox.events_pending.
 * PostgreSQL has no view of row locks.
 */
#include "server/base/sql_function.h"
#include "server/storage/owner_sql.h"

extern "C" {
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_type.h"
#include "storage/bufmgr.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/rel.h"
}

/* Returns the transaction (or multixact) that has locked or changed the row; InvalidTransactionId when there is none.
 */
static TransactionId holder_of(Relation table, ItemPointer ctid, uint16 *infomask) {
  TransactionId holder = InvalidTransactionId;

  if (table->rd_rel->relam != HEAP_TABLE_AM_OID ||
      ItemPointerGetBlockNumber(ctid) >= RelationGetNumberOfBlocks(table))
    return holder;
  Buffer buffer = ReadBuffer(table, ItemPointerGetBlockNumber(ctid));
  LockBuffer(buffer, BUFFER_LOCK_SHARE);
  Page page = BufferGetPage(buffer);
  OffsetNumber offset = ItemPointerGetOffsetNumber(ctid);
  if (offset >= FirstOffsetNumber && offset <= PageGetMaxOffsetNumber(page) &&
      ItemIdIsNormal(PageGetItemId(page, offset))) {
    ItemId item = PageGetItemId(page, offset);
    HeapTupleData tuple;
    tuple.t_data = (HeapTupleHeader)PageGetItem(page, item);
    tuple.t_len = ItemIdGetLength(item);
    tuple.t_tableOid = RelationGetRelid(table);
    tuple.t_self = *ctid;
    if (HeapTupleSatisfiesUpdate(&tuple, GetCurrentCommandId(false), buffer) == TM_BeingModified) {
      holder = HeapTupleHeaderGetRawXmax(tuple.t_data);
      *infomask = tuple.t_data->t_infomask;
    }
  }
  UnlockReleaseBuffer(buffer);
  return holder;
}

SQL_FUNCTION(outbox_row_holders) {
  uint16 infomask = 0;
  Relation table = table_open(outbox_pending_oid(), AccessShareLock);
  TransactionId holder = holder_of(table, (ItemPointer)PG_GETARG_POINTER(0), &infomask);
  MultiXactMember *members = NULL;
  int n = 0, n_holders = 0;

  table_close(table, NoLock);
  if (TransactionIdIsValid(holder) && (infomask & HEAP_XMAX_IS_MULTI))
    n = Max(0, GetMultiXactIdMembers(holder, &members, HEAP_LOCKED_UPGRADED(infomask),
                                     HEAP_XMAX_IS_LOCKED_ONLY(infomask)));
  Datum *holders = palloc_array(Datum, n + 1);
  if (TransactionIdIsValid(holder) && !(infomask & HEAP_XMAX_IS_MULTI))
    holders[n_holders++] = TransactionIdGetDatum(holder);
  for (int i = 0; i < n; i++)
    if (TransactionIdIsInProgress(members[i].xid))
      holders[n_holders++] = TransactionIdGetDatum(members[i].xid);
  PG_RETURN_ARRAYTYPE_P(construct_array(holders, n_holders, XIDOID, 4, true, TYPALIGN_INT));
}
