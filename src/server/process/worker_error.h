/*
 * worker_error.h: handles failed transactions of the worker. A repeated error is logged once per minute. Recording
 * and claiming have separate pauses, so that an error in one of them does not stop the other. An error that says "out
 * of memory" ends the worker.
 */
#pragma once

#include "server/base/clock.h"

#include "dispatch/types.h"

typedef enum WorkerTask { TASK_RECORD, TASK_CLAIM, TASK_MAINTAIN } WorkerTask;

/* In PG_CATCH: logs the error unless it was logged in the last minute, aborts the transaction and sets the task's
 * pause. For an error that a row can cause, `is_of_one_row` (may be NULL) says whether reading one row raised it.
 * Returns in TopMemoryContext. */
dispatch::Fault worker_failed(WorkerTask task, Moment now, bool (*is_of_one_row)(const char *error, int code));
/* The same outside of a transaction's error: an allocation failed there. */
[[noreturn]] void worker_out_of_memory(const char *where);
/* Ends the task's pause. */
void worker_succeeded(WorkerTask task);

/* The task may not be tried before this moment. */
Moment worker_pause_end(WorkerTask task);

/* Has recording or claiming failed, and not succeeded since? Then they run in separate transactions. */
bool worker_has_errors(void);

/* Did the last transaction fail because another session has locked a table? */
bool worker_waits_for_lock(void);

/* The error message of the last failed transaction; valid until the next one fails. */
const char *worker_last_error(void);

/* SIGTERM ends the process. While worker_set_cancel_on_sigterm(true) holds, it also cancels the running statement,
 * which may wait for a lock. */
void worker_sigterm_handler(SIGNAL_ARGS);
/* SIGINT cancels the running transaction, if there is one. */
void worker_sigint_handler(SIGNAL_ARGS);
void worker_set_cancel_on_sigterm(bool yes);
