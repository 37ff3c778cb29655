/*
 * worker_wait.cpp: two WaitEventSets, with the engine's descriptor and without. The latch, interrupts and the
 * postmaster's death end every wait; a query cancel is dropped, because no user's query runs here.
 */
#include "server/worker/worker_wait.h"

extern "C" {
#include "access/xact.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"
}

static const long LONGEST_MS = 3600000;

static WaitEventSet *with_engine = NULL;
static WaitEventSet *without_engine = NULL;

static uint32 idle_event = 0, delivery_event = 0;

static WaitEventSet *make_set(int n) {
  WaitEventSet *set = outbox_create_wait_event_set(n);

  AddWaitEventToSet(set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
  AddWaitEventToSet(set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
  return set;
}

void worker_wait_init(int engine_fd) {
  idle_event = outbox_wait_event("OutboxWaitForEvents");
  delivery_event = outbox_wait_event("OutboxWaitForSinks");
  with_engine = make_set(3);
  AddWaitEventToSet(with_engine, WL_SOCKET_READABLE, engine_fd, NULL, NULL);
  without_engine = make_set(2);
}

void worker_wait(long milliseconds, bool listen_to_engine, bool delivering) {
  WaitEvent event;

  Assert(!IsTransactionState() && with_engine != NULL);
  (void)WaitEventSetWait(listen_to_engine ? with_engine : without_engine, Min(milliseconds, LONGEST_MS), &event, 1,
                         delivering ? delivery_event : idle_event);
  ResetLatch(MyLatch);
  QueryCancelPending = false; /* pg_cancel_backend(): a worker runs no user's query */
  CHECK_FOR_INTERRUPTS();
}
