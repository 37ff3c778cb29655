/*
 * worker_error.h: what becomes of a worker's transaction that fails. The error is told once, not each round, and
 * recording and claiming pause each for itself: what spoils one of them leaves the other alone.
 */
#pragma once

#include "server/base/clock.h"

typedef enum WorkerTask { TASK_RECORD, TASK_CLAIM, TASK_MAINTAIN } WorkerTask;

/* Who is to blame for a failed transaction: the server's state (a lock, a full disk, the end); the rows at hand, any
 * of them (a trigger, a constraint); or one row that cannot be read, which claims leave out from now on. */
typedef enum WorkerFault { FAULT_OF_SERVER, FAULT_OF_ROWS, FAULT_OF_ONE_ROW } WorkerFault;

/* In PG_CATCH: tells the error, unless it was told lately, ends the transaction and sets the task's pause. Of an
 * error that rows may be to blame for, `is_of_one_row` (may be NULL) says whether it was that of the row at hand.
 * Returns in TopMemoryContext. */
WorkerFault worker_failed(WorkerTask task, Moment now, bool (*is_of_one_row)(const char *error));
void worker_succeeded(WorkerTask task);

/* The task may not be tried before this moment. */
Moment worker_pause_end(WorkerTask task);

/* An error is not long ago: recording and claiming are two transactions then. */
bool worker_has_errors(void);

/* Somebody's lock on a table is in the way. */
bool worker_waits_for_lock(void);

/* What the last failed transaction said; valid until the next one fails. */
const char *worker_last_error(void);

/* SIGTERM ends the process, and while `yes` holds also the statement that waits for somebody's lock. */
void worker_sigterm_handler(SIGNAL_ARGS);
void worker_set_cancel_on_sigterm(bool yes);
