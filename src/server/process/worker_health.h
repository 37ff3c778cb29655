/* worker_health.h: why a database has no worker, for outbox.doctor(): since when one is wanted, how often the last
 * ones died, and what they said. */
#pragma once

#include "server/shmem/shared_state.h"

/* First thing in a worker: what it says before it dies is kept. */
void worker_health_init(Oid database);
/* A round of its loop begins: what it said before is not why it ends. */
void worker_health_clear(void);

/* The launcher's word; they take the lock. `slot` is one of the shared databases. */
void worker_health_wanted(const DatabaseSlot *slot, Oid database, bool wanted, Moment now);
void worker_health_ended(Oid database, int failures, TimestampTz at, Moment next_start);
