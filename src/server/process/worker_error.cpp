/*
 * worker_error.cpp: what ended is recorded by the next transaction, what was claimed is given back, and every scan
 * goes back to where the round began. After an error recording and claiming run in separate transactions until both
 * succeed. A row that cannot be recorded (a user's trigger or constraint) is found by halving the batch; it waits
 * alone and is not sent again.
 */
#include "server/process/worker_error.h"

#include "server/base/error_class.h"

#include <errno.h>

extern "C" {
#include "access/xact.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "utils/memutils.h"
}

static const int FIRST_PAUSE_MS = 100;
static const int LAST_PAUSE_MS = 10000;
/* The wait for the lock itself takes its time already. */
static const int LOCK_PAUSE_MS = 100;
/* The same words are told again after so long. */
static const int REPEAT_MS = 60000;

typedef struct Trouble {
  int pause_ms; /* 0 = none */
  Moment until;
  Moment told_at;
  char told[256];
  bool locked;
} Trouble;

static Trouble troubles[TASK_MAINTAIN + 1];
static Trouble locks; /* whichever task meets it */
static Trouble unreadable;
static char last_error[1024];
static volatile sig_atomic_t end_cancels = false;

static bool told_lately(Trouble *trouble, const char *message, Moment now) {
  if (trouble->told_at != MOMENT_NONE && strncmp(trouble->told, message, sizeof(trouble->told) - 1) == 0 &&
      !moment_is_past(trouble->told_at, now, REPEAT_MS))
    return true;
  strlcpy(trouble->told, message, sizeof(trouble->told));
  trouble->told_at = now;
  return false;
}

WorkerFault worker_failed(WorkerTask task, Moment now, bool (*is_of_one_row)(const char *error)) {
  Trouble *trouble = &troubles[task];

  MemoryContextSwitchTo(TopMemoryContext);
  HOLD_INTERRUPTS();
  ErrorData *error = CopyErrorData();
  int code = error->sqlerrcode;
  bool locked = code == ERRCODE_LOCK_NOT_AVAILABLE;
  bool moved = ERRCODE_TO_CATEGORY(code) == ERRCODE_TO_CATEGORY(ERRCODE_T_R_SERIALIZATION_FAILURE);
  bool ending = code == ERRCODE_QUERY_CANCELED && ShutdownRequestPending;

  strlcpy(last_error, error->message ? error->message : "", sizeof(last_error));
  WorkerFault fault = !error_is_of_rows(code)                      ? FAULT_OF_SERVER
                      : is_of_one_row && is_of_one_row(last_error) ? FAULT_OF_ONE_ROW
                                                                   : FAULT_OF_ROWS;
  trouble->locked = locked;
  if (locked) {
    if (!told_lately(&locks, last_error, now))
      ereport(LOG, (errmsg("outbox waits for a lock that somebody holds on its tables: %s", last_error),
                    errhint("SELECT * FROM pg_stat_activity WHERE pid = ANY (pg_blocking_pids(%d));", MyProcPid)));
  } else if (fault == FAULT_OF_ONE_ROW) {
    if (!told_lately(&unreadable, "", now))
      ereport(WARNING, (errmsg("outbox cannot read an event: %s", last_error),
                        errdetail("It waits, with this error in its row, and holds up its key alone.")));
  } else if (!moved && !ending && !told_lately(trouble, last_error, now)) {
    EmitErrorReport();
  }
  FreeErrorData(error);
  FlushErrorState();
  AbortCurrentTransaction();
  MemoryContextSwitchTo(TopMemoryContext);
  RESUME_INTERRUPTS();

  trouble->pause_ms =
      locked || moved ? LOCK_PAUSE_MS : Min(Max(trouble->pause_ms * 2, FIRST_PAUSE_MS), LAST_PAUSE_MS);
  trouble->until = moment_after(moment_now(), trouble->pause_ms);
  return fault;
}

void worker_succeeded(WorkerTask task) {
  troubles[task].pause_ms = 0;
  troubles[task].until = MOMENT_NONE;
  troubles[task].locked = false;
}

bool worker_waits_for_lock(void) {
  return troubles[TASK_RECORD].locked || troubles[TASK_CLAIM].locked;
}

Moment worker_pause_end(WorkerTask task) {
  return troubles[task].until;
}

bool worker_has_errors(void) {
  return troubles[TASK_RECORD].pause_ms > 0 || troubles[TASK_CLAIM].pause_ms > 0;
}

const char *worker_last_error(void) {
  return last_error;
}

/* It comes again and again while somebody waits for us to go: it cancels once. */
void worker_sigterm_handler(SIGNAL_ARGS) {
  int saved_errno = errno;

  if (end_cancels && !ShutdownRequestPending) {
    QueryCancelPending = true;
    InterruptPending = true;
  }
  SignalHandlerForShutdownRequest(OUTBOX_SIGNAL_ARGUMENTS);
  errno = saved_errno;
}

void worker_set_cancel_on_sigterm(bool yes) {
  end_cancels = yes;
  if (!yes)
    QueryCancelPending = false;
}
