/* worker_health.h: for outbox.doctor(): since when a database has lacked a worker, how often the last ones failed,
 * and their last error. */
#pragma once

#include "server/shmem/shared_state.h"

/* At the worker's start: keeps its last error message for the case that it fails. The library must be preloaded. */
void worker_health_init(Oid database);
/* At the start of each loop: forgets the message, because an earlier error is not the reason of a later exit. */
void worker_health_clear(void);

/* From the launcher: whether the database lacks a worker, and how its last one ended. `slot` is an element of
 * SharedState.databases. They take the lock. */
void worker_health_wanted(const DatabaseSlot *slot, Oid database, bool wanted, Moment now);
void worker_health_ended(Oid database, int failures, TimestampTz at, Moment next_start);
/* As worker_health_ended(), after a crash, of which the worker could leave no message. */
void worker_health_crashed(Oid database, int crashes, TimestampTz at, Moment next_start);
