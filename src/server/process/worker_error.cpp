/*
 * worker_error.cpp: after a failed transaction the next one records the ended events, claimed events are returned,
 * and every scan restarts where the round began. Recording and claiming run in separate transactions until both
 * succeed. A row that cannot be recorded (a user's trigger or constraint) is found by halving the batch; it waits
 * alone and is not sent again.
 * A lack of memory ends the worker instead: the next one goes on as after a kill, with all memory that this one held.
 */
#include "server/process/worker_error.h"

#include "server/base/error_class.h"
#include "server/base/error_text.h"

#include <errno.h>

extern "C" {
#include "access/xact.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"
}

static const int FIRST_PAUSE_MS = 100;
static const int LAST_PAUSE_MS = 10000;
/* Short, because lock_timeout has passed already. */
static const int LOCK_PAUSE_MS = 100;
/* A repeated error is logged again after this time. */
static const int REPEAT_MS = 60000;

typedef struct TaskErrors {
  int pause_ms; /* 0 = no error */
  Moment until;
  Moment logged_at;
  char logged[256];
  bool locked;
} TaskErrors;

static TaskErrors task_errors[TASK_MAINTAIN + 1];
static TaskErrors locks; /* of all tasks */
static TaskErrors unreadable;
static char last_error[1024];
static volatile sig_atomic_t cancel_on_sigterm = false;

static bool logged_lately(TaskErrors *errors, const char *message, Moment now) {
  if (errors->logged_at != MOMENT_NONE && strncmp(errors->logged, message, sizeof(errors->logged) - 1) == 0 &&
      !moment_is_past(errors->logged_at, now, REPEAT_MS))
    return true;
  strlcpy(errors->logged, message, sizeof(errors->logged));
  errors->logged_at = now;
  return false;
}

/* Like EmitErrorReport(), without a DETAIL that shows values of a row. As a WARNING, because an ERROR would be
 * thrown. */
static void log_error(ErrorData *error) {
  if (!error_detail_shows_rows(error->sqlerrcode) || (error->detail == NULL && error->detail_log == NULL)) {
    EmitErrorReport();
    return;
  }
  ErrorContextCallback *callbacks = error_context_stack; /* error->context has their lines already */
  error_context_stack = NULL;
  error->detail = error->detail_log = NULL;
  error->elevel = WARNING;
  ThrowErrorData(error);
  error_context_stack = callbacks;
}

/* "out of shared memory", as of a full table of locks, has the same code, and is no lack of this process's. */
static bool lacks_memory(const ErrorData *error) {
  return error->sqlerrcode == ERRCODE_OUT_OF_MEMORY && error->message_id &&
         strcmp(error->message_id, "out of memory") == 0;
}

dispatch::Fault worker_failed(WorkerTask task, Moment now, bool (*is_of_one_row)(const char *error, int code)) {
  TaskErrors *errors = &task_errors[task];

  MemoryContextSwitchTo(TopMemoryContext);
  HOLD_INTERRUPTS();
  ErrorData *error = CopyErrorData();
  int code = error->sqlerrcode;
  bool locked = code == ERRCODE_LOCK_NOT_AVAILABLE;
  bool moved = ERRCODE_TO_CATEGORY(code) == ERRCODE_TO_CATEGORY(ERRCODE_T_R_SERIALIZATION_FAILURE);
  bool ending = code == ERRCODE_QUERY_CANCELED && ShutdownRequestPending;

  if (lacks_memory(error)) {    /* FATAL: the process ends here */
    error_context_stack = NULL; /* error->context has their lines already */
    error->elevel = FATAL;
    FlushErrorState();
    ThrowErrorData(error);
  }
  copy_server_error(last_error, sizeof(last_error), error);
  dispatch::Fault fault = !error_is_of_rows(code)                            ? dispatch::Fault::OF_SERVER
                          : is_of_one_row && is_of_one_row(last_error, code) ? dispatch::Fault::OF_ONE_ROW
                                                                             : dispatch::Fault::OF_ROWS;
  errors->locked = locked;
  if (locked) {
    if (!logged_lately(&locks, last_error, now))
      ereport(LOG, (errmsg("outbox waits for a lock that another session holds on its tables: %s", last_error),
                    errhint("SELECT * FROM pg_stat_activity WHERE pid = ANY (pg_blocking_pids(%d));", MyProcPid)));
  } else if (fault == dispatch::Fault::OF_ONE_ROW) {
    if (!logged_lately(&unreadable, "", now))
      ereport(WARNING,
              (errmsg("outbox cannot read an event: %s", last_error),
               errdetail("It is tried again later and blocks only its key; its column last_error has this error.")));
  } else if (!moved && !ending && !logged_lately(errors, last_error, now)) {
    log_error(error);
  }
  FreeErrorData(error);
  FlushErrorState();
  AbortCurrentTransaction();
  MemoryContextSwitchTo(TopMemoryContext);
  RESUME_INTERRUPTS();

  errors->pause_ms = locked || moved ? LOCK_PAUSE_MS : Min(Max(errors->pause_ms * 2, FIRST_PAUSE_MS), LAST_PAUSE_MS);
  errors->until = moment_after(moment_now(), errors->pause_ms);
  return fault;
}

void worker_out_of_memory(const char *where) {
  ereport(FATAL, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory"), errdetail_internal("%s", where)));
  pg_unreachable();
}

void worker_succeeded(WorkerTask task) {
  task_errors[task].pause_ms = 0;
  task_errors[task].until = MOMENT_NONE;
  task_errors[task].locked = false;
}

bool worker_waits_for_lock(void) {
  return task_errors[TASK_RECORD].locked || task_errors[TASK_CLAIM].locked;
}

Moment worker_pause_end(WorkerTask task) {
  return task_errors[task].until;
}

bool worker_has_errors(void) {
  return task_errors[TASK_RECORD].pause_ms > 0 || task_errors[TASK_CLAIM].pause_ms > 0;
}

const char *worker_last_error(void) {
  return last_error;
}

/* SIGTERM is repeated while a session waits for the worker's exit; only the first one cancels. */
void worker_sigterm_handler(SIGNAL_ARGS) {
  int saved_errno = errno;

  if (cancel_on_sigterm && !ShutdownRequestPending) {
    QueryCancelPending = true;
    InterruptPending = true;
  }
  SignalHandlerForShutdownRequest(OUTBOX_SIGNAL_ARGUMENTS);
  errno = saved_errno;
}

/* pg_cancel_backend(), or a timeout of the server's own. Between transactions no one would catch the error, which the
 * next line of the log would raise. */
void worker_sigint_handler(SIGNAL_ARGS) {
  if (IsTransactionState())
    StatementCancelHandler(OUTBOX_SIGNAL_ARGUMENTS);
}

void worker_set_cancel_on_sigterm(bool yes) {
  cancel_on_sigterm = yes;
  if (!yes)
    QueryCancelPending = false;
}
