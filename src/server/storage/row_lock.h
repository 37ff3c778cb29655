/*
 * row_lock.h: takes row locks without waiting, and knows afterwards which rows it did not get and why. A bare SKIP
 * LOCKED knows neither.
 */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "access/transam.h"
#include "executor/tuptable.h"
#include "storage/itemptr.h"
}

/* When a busy row is looked at again, in milliseconds. */
#define ROW_BUSY_PAUSE_MS 200

typedef enum RowLockResult {
  ROW_LOCKED, /* ours until the end of the transaction, at `ctid` */
  ROW_BUSY,   /* somebody holds it, or changed it since it was read */
  ROW_GONE,   /* no pending row has this position any more */
  ROW_FREE,   /* unmodified_rows.h: as it was read, and nobody held it */
  ROW_DELETED /* unmodified_rows.h: by us */
} RowLockResult;

typedef struct RowLock {
  int64 position;
  ItemPointerData ctid; /* where it was read; where it is now, when ROW_LOCKED after a move */
  RowLockResult result;
  void *owner;                               /* the caller's */
  TransactionId xmin = InvalidTransactionId; /* for unmodified_rows.h: who wrote it */
  Oid file = InvalidOid;                     /* likewise: of the table, when it was read */
} RowLock;

/* Is the row, as it is now, still the one that the caller means? */
typedef bool (*RowCheck)(TupleTableSlot *row, TupleDesc desc, const RowLock *lock);

/* Locks rows of events_pending. The array is sorted by ctid on return. With `follow`, a row that has moved to another
 * place is locked there (to record it), and one that `follow` refuses is gone; without, a row that has moved counts
 * as busy (to read it again before it is sent). */
void row_lock(RowLock *locks, int n, RowCheck follow);
