/*
 * row_lock.h: takes row locks without waiting, and reports for each row whether it was locked, busy or gone. SKIP
 * LOCKED reports neither the rows that it skipped nor why.
 */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "access/transam.h"
#include "executor/tuptable.h"
#include "storage/itemptr.h"
}

/* After this time a busy row is tried again. */
#define ROW_BUSY_PAUSE_MS 200

typedef enum RowLockResult {
  ROW_LOCKED, /* locked until the end of this transaction, at `ctid` */
  ROW_BUSY,   /* another transaction has locked the row, or changed it since it was read */
  ROW_GONE,   /* no pending row has this position anymore */
  ROW_FREE,   /* unmodified_rows.h: unchanged since it was read, and not locked */
  ROW_DELETED /* unmodified_rows.h: deleted by this transaction */
} RowLockResult;

typedef struct RowLock {
  int64 position;
  ItemPointerData ctid; /* where the row was read; its present place, when ROW_LOCKED after a move */
  RowLockResult result;
  void *owner;                               /* for the caller */
  TransactionId xmin = InvalidTransactionId; /* for unmodified_rows.h: the transaction that wrote the row */
  Oid file = InvalidOid;                     /* for unmodified_rows.h: the table's file when the row was read */
} RowLock;

/* Is the row in its present version still the one that the caller means? */
typedef bool (*RowCheck)(TupleTableSlot *row, TupleDesc desc, const RowLock *lock);

/* Locks rows of events_pending, and sorts the array by ctid. With `follow` (to record outcomes) a row that was
 * updated since it was read is locked at its new place; it counts as gone if `follow` returns false. Without `follow`
 * (to claim rows) an updated row counts as busy, so that the caller reads it again before it is sent. In SPI. */
void row_lock(RowLock *locks, int n, RowCheck follow);
