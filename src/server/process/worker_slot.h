/* worker_slot.h: the worker's own slot in shared memory, by which commits wake it and outbox.workers shows it. */
#pragma once

#include "server/shmem/shared_state.h"

/* The launcher's arguments for a worker, in bgw_extra. */
typedef struct WorkerArguments {
  Oid database;
  int index; /* of the database's workers, from 0 */
} WorkerArguments;

/* Takes a free slot. Returns false when there is none, or when another process, which is about to exit, has this
 * index. Once per process; takes the lock. */
bool worker_slot_take(const WorkerArguments *arguments);
/* The slot of this process; NULL before worker_slot_take(). The functions below need it. */
WorkerSlot *worker_slot(void);

/* For a surplus worker without shards: gives the slot up and returns true, unless the launcher wants it again. Takes
 * the lock. */
bool worker_slot_resign(void);

/* Sets WORKER_RUNNING: after the start, or when the worker has work again. Outside a transaction; takes the lock. */
void worker_slot_run(void);
/* Sets WORKER_LEAVING: the worker is about to exit. Takes the lock. */
void worker_slot_leave(void);

/* Sets WORKER_IDLE: the worker has no work before `until`, and no event is due before `due`. Returns true when all
 * workers of the database are idle and no commit came since this one looked. Then it must exit; the launcher starts
 * workers again at the next commit or when an event is due. Takes the lock. */
bool worker_slot_exit_idle(Moment until, TimestampTz due);
/* Do other databases wait for a background worker slot? */
bool worker_slots_are_scarce(void);
/* Must this worker exit, because another database gets its slot (slot_sharing.h)? */
bool worker_slot_is_revoked(void);

/* Reports the state of this database to the launcher. Returns true when it has changed. Takes the lock. */
bool worker_slot_report_state(DatabaseState state);

/* Shows the purpose of the running or next transaction in pg_stat_activity. */
void worker_slot_report_work(const char *activity);

/* Shows the activity in pg_stat_activity and outbox.workers; no-op when it is unchanged. Outside a transaction. */
void worker_slot_report_activity(const char *activity);

/* For outbox.doctor(): since when events wait to be routed (0: none does), and the error of the last routing, or "".
 */
void worker_slot_report_routing(TimestampTz since, const char *error);

/* Stores the time of this loop, and once per second the memory of the process. */
void worker_slot_refresh(Now now);
