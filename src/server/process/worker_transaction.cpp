/*
 * worker_transaction.cpp: every transaction takes a share lock on the extension, so that DROP EXTENSION waits for it
 * instead of deadlocking with it. DDL locks outbox.events before its partitions, the worker mostly the other way
 * round. The worker's `deadlock_timeout` of 10 ms and a `lock_timeout` shorter than the `deadlock_timeout` of other
 * sessions make the worker the victim of a deadlock (a user's LOCK TABLE was the victim in 3 of 8 runs with the first
 * alone, in 0 of 8 with both).
 */
#include "server/process/worker_transaction.h"

#include "server/base/fault_point.h"
#include "server/base/is_worker.h"
#include "server/process/worker_error.h"
#include "server/process/worker_extension.h"
#include "server/process/worker_owner.h"

extern "C" {
#include "access/xact.h"
#include "executor/spi.h"
#include "postmaster/interrupt.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
}

bool worker_transaction(const char *first, void (*body)(void *), void *argument) {
  Assert(server_is_worker && !IsTransactionState());
  volatile bool done = false;
  MemoryContext context = CurrentMemoryContext;

  worker_set_cancel_on_sigterm(!ShutdownRequestPending);
  PG_TRY();
  {
    SetCurrentStatementStartTimestamp();
    StartTransactionCommand();
    worker_lock_extension();
    worker_owner_enter();
    PushActiveSnapshot(GetTransactionSnapshot());
    SPI_connect();
    if (first && SPI_execute(first, false, 0) != SPI_OK_UTILITY)
      elog(ERROR, "could not run \"%s\"", first);
    body(argument);
    OUTBOX_FAULT_POINT("maintain.before_commit");
    SPI_finish();
    PopActiveSnapshot();
    worker_owner_leave_settings();
    CommitTransactionCommand();
    worker_owner_leave();
    OUTBOX_FAULT_POINT("maintain.committed");
    worker_succeeded(TASK_MAINTAIN);
    done = true;
  }
  PG_CATCH();
  { (void)worker_failed(TASK_MAINTAIN, moment_now(), NULL); }
  PG_END_TRY();
  worker_set_cancel_on_sigterm(false);
  MemoryContextSwitchTo(context);
  return done;
}
