/*
 * durable.cpp: the commit log keeps one WAL position for 32 transactions, including the worker's own asynchronous
 * ones. So a synchronous commit costs a flush when a commit of the worker follows it in its group: 4 of 150
 * transactions one after the other (148 if every claim flushed), about 30 of 300 in bursts of ten.
 */
#include "server/storage/durable.h"

extern "C" {
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "storage/lwlock.h"
#include "utils/snapmgr.h"
}

/* Transactions before this one are flushed. They must not be looked up in the commit log, which may be truncated
 * there. durable_flush() moves the horizon every HORIZON_AGE transactions, long before the log is truncated. */
static TransactionId horizon = InvalidTransactionId;
static const uint32 HORIZON_AGE = 1000000;

static TransactionId last_noted = InvalidTransactionId;
static XLogRecPtr needed = InvalidXLogRecPtr;
static bool own_needed = false; /* the transaction of the round itself */

/* The synchronous commit of an own transaction flushes every commit record before it. */
void durable_init(void) {
  Assert(!IsTransactionState());
  StartTransactionCommand();
  TransactionId oldest_running = GetTransactionSnapshot()->xmin;
  (void)GetCurrentTransactionId();
  ForceSyncCommit();
  CommitTransactionCommand();
  horizon = oldest_running;
  last_noted = InvalidTransactionId;
}

void durable_note(TransactionId xmin) {
  Assert(TransactionIdIsValid(horizon)); /* durable_init() was called */
  if (xmin == last_noted || TransactionIdPrecedes(xmin, horizon))
    return;
  /* A frozen row keeps its old xmin, which can look like a future one after a wraparound. */
  if (!TransactionIdIsNormal(xmin) || !TransactionIdPrecedes(xmin, ReadNextTransactionId()))
    return;
  last_noted = xmin;
  /* A user's trigger has written the row in the recordings of this round: the commit log knows it only later. */
  if (TransactionIdIsCurrentTransactionId(xmin)) {
    own_needed = true;
    return;
  }
  XLogRecPtr lsn = InvalidXLogRecPtr;
  LWLockAcquire(XactTruncationLock, LW_SHARED); /* truncated parts of the commit log were flushed long ago */
  if (!TransactionIdPrecedes(xmin, OUTBOX_OLDEST_CLOG_XID))
    lsn = TransactionIdGetCommitLSN(xmin);
  LWLockRelease(XactTruncationLock);
  if (lsn > needed)
    needed = lsn;
}

void durable_flush(void) {
  Assert(!IsTransactionState());
  if (own_needed)
    needed = Max(needed, XactLastCommitEnd);
  if (needed != InvalidXLogRecPtr)
    XLogFlush(needed);
  needed = InvalidXLogRecPtr;
  own_needed = false;
  last_noted = InvalidTransactionId;
  if ((uint32)(ReadNextTransactionId() - horizon) > HORIZON_AGE)
    durable_init();
}
