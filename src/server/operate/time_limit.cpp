/*
 * time_limit.cpp: for outbox.doctor(): ends one of its checks that takes too long, so that the others are still made.
 * A change of statement_timeout has no effect on the statement that is running. This timer asks for a cancel of the
 * query, as pg_cancel_backend() does, and remembers that it did, so that a user's cancel is still one.
 */
#include "server/base/sql_function.h"

extern "C" {
#include "storage/latch.h"
#include "utils/timeout.h"
}

static volatile sig_atomic_t reached = false;

/* Runs in the handler of SIGALRM. */
static void cancel_query(void) {
  reached = true;
  QueryCancelPending = true;
  InterruptPending = true;
  SetLatch(MyLatch);
}

/* Sets the limit, in milliseconds from now; 0: none. Returns whether the former one was reached. An error that ends
 * the user's statement ends all timeouts of the session. */
SQL_FUNCTION(outbox_time_limit) {
  static TimeoutId timeout = MAX_TIMEOUTS;
  const int limit = PG_GETARG_INT32(0);

  if (timeout == MAX_TIMEOUTS)
    timeout = RegisterTimeout(USER_TIMEOUT, cancel_query);
  disable_timeout(timeout, false);
  const bool was_reached = reached;
  /* It was reached after the last place where the check could end: the cancel must not end what follows. */
  if (was_reached)
    QueryCancelPending = false;
  reached = false;
  if (limit > 0)
    enable_timeout_after(timeout, limit);
  PG_RETURN_BOOL(was_reached);
}
