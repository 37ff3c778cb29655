/* worker_slot.h: the worker's place in shared memory, by which commits wake it and users see it. */
#pragma once

#include "server/shmem/shared_state.h"

/* What the launcher tells a worker, in bgw_extra. */
typedef struct WorkerArguments {
  Oid database;
  int index; /* of the database's workers, from 0 */
} WorkerArguments;

/* Takes a free slot; false when another process has this index (it is about to leave: come back later). */
bool worker_slot_take(const WorkerArguments *arguments);
WorkerSlot *worker_slot(void);

/* For one worker too many that has nothing left to do: gives the slot up, unless it is needed again. */
bool worker_slot_resign(void);

/* It has found what it is here for, or has something to do again. Between transactions. */
void worker_slot_run(void);
/* It is about to end. */
void worker_slot_leave(void);

/* Nothing is due here before `until`. True when that holds for all workers of the database, and nothing was committed
 * since this one looked: then it must end, and the launcher starts workers again when they are called. */
bool worker_slot_exit_idle(Moment until, TimestampTz due);
/* Before it ends with work left to do: that is no failure, and the launcher starts another one as soon as it may. */
void worker_slot_expect_exit(void);
/* Other databases wait for a worker. */
bool worker_slots_are_scarce(void);
/* This worker must leave: another database is to have its slot (slot_sharing.h). */
bool worker_slot_is_revoked(void);

/* What the launcher should know of this database. True when it is new to it. */
bool worker_slot_report_state(DatabaseState state);

/* For pg_stat_activity: what the transaction that begins is about. */
void worker_slot_report_work(const char *activity);

/* For pg_stat_activity and outbox.workers, between transactions; no-op when nothing changed. */
void worker_slot_report_activity(const char *activity);

/* Once a second at most: memory and the like. */
void worker_slot_refresh(Now now);
