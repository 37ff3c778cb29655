/*
 * durable.cpp: what the commit log knows of a commit's WAL position is shared by 32 transactions, our own
 * asynchronous ones included. So a synchronous commit costs a flush when one of ours came just after it: 4 of 150
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

/* Transactions before this one are known to be flushed. The commit log may have forgotten them, so they must not be
 * looked up either. Moved forward now and then, long before the log is truncated. */
static TransactionId horizon = InvalidTransactionId;
static const uint32 HORIZON_AGE = 1000000;

static TransactionId last_noted = InvalidTransactionId;
static XLogRecPtr needed = InvalidXLogRecPtr;

/* A synchronous commit of our own flushes every commit record before it. */
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
  if (xmin == last_noted || TransactionIdPrecedes(xmin, horizon))
    return;
  /* A frozen row keeps its old xmin, which can look like one of the future after a wraparound. */
  if (!TransactionIdIsNormal(xmin) || !TransactionIdPrecedes(xmin, ReadNextTransactionId()))
    return;
  last_noted = xmin;
  XLogRecPtr lsn = InvalidXLogRecPtr;
  LWLockAcquire(XactTruncationLock, LW_SHARED); /* what the commit log has forgotten was flushed long ago */
  if (!TransactionIdPrecedes(xmin, OUTBOX_OLDEST_CLOG_XID))
    lsn = TransactionIdGetCommitLSN(xmin);
  LWLockRelease(XactTruncationLock);
  if (lsn > needed)
    needed = lsn;
}

void durable_flush(void) {
  Assert(!IsTransactionState());
  if (needed != InvalidXLogRecPtr)
    XLogFlush(needed);
  needed = InvalidXLogRecPtr;
  last_noted = InvalidTransactionId;
  if ((uint32)(ReadNextTransactionId() - horizon) > HORIZON_AGE)
    durable_init();
}
