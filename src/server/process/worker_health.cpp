/*
 * worker_health.cpp: the launcher notes since when a database lacks a worker, and the doctor reports it after 10 s,
 * so that a worker that is about to start is no finding. The last error of a failed worker is kept here, because its
 * log line may be hard to find.
 */
#include "server/process/worker_health.h"

#include "server/base/library_version.h"
#include "server/base/sql_function.h"

extern "C" {
#include "access/htup_details.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "storage/ipc.h"
#include "utils/builtins.h"
}

static emit_log_hook_type previous_hook = NULL;
static char last_message[sizeof(((WorkerHealth *)0)->failure)];

/* Returns NULL when the database has no slot. The lock must be held. */
static WorkerHealth *health_of(Oid database) {
  Assert(LWLockHeldByMe(shared_state()->lock));
  SharedState *shared = shared_state();
  DatabaseSlot *slot = shared_database(database, false);

  return slot ? &shared->health[slot - shared->databases] : NULL;
}

/* ---- the worker --------------------------------------------------------------------------------------------- */

static void keep_message(ErrorData *error) {
  if (error->elevel >= ERROR && error->message)
    strlcpy(last_message, error->message, sizeof(last_message));
  if (previous_hook)
    previous_hook(error);
}

static void store_message_at_exit(int code, Datum database) {
  if (code == 0)
    return;
  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
  WorkerHealth *health = health_of(DatumGetObjectId(database));
  if (health) {
    int length = pg_mbcliplen(last_message, strlen(last_message), sizeof(health->failure) - 1);
    memcpy(health->failure, last_message, length);
    health->failure[length] = '\0';
  }
  LWLockRelease(shared_state()->lock);
}

void worker_health_init(Oid database) {
  previous_hook = emit_log_hook;
  emit_log_hook = keep_message;
  before_shmem_exit(store_message_at_exit, ObjectIdGetDatum(database));
}

void worker_health_clear(void) {
  last_message[0] = '\0';
}

/* ---- the launcher ------------------------------------------------------------------------------------------- */

void worker_health_wanted(const DatabaseSlot *slot, Oid database, bool wanted, Moment now) {
  Assert(slot >= shared_state()->databases && slot < shared_state()->databases + OUTBOX_MAX_DATABASES);
  SharedState *shared = shared_state();
  WorkerHealth *health = &shared->health[slot - shared->databases];

  if (wanted == (health->wanted_since != MOMENT_NONE))
    return;
  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  if (slot->oid == database)
    health->wanted_since = wanted ? now : MOMENT_NONE;
  LWLockRelease(shared->lock);
}

void worker_health_ended(Oid database, int failures, TimestampTz at, Moment next_start) {
  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
  WorkerHealth *health = health_of(database);
  if (health) {
    health->failures = failures;
    health->failed_at = at;
    health->next_start = next_start;
  }
  LWLockRelease(shared_state()->lock);
}

void worker_health_crashed(Oid database, int crashes, TimestampTz at, Moment next_start) {
  worker_health_ended(database, crashes, at, next_start);
  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
  WorkerHealth *health = health_of(database);
  if (health)
    strlcpy(health->failure, "its process crashed, which restarted the server", sizeof(health->failure));
  LWLockRelease(shared_state()->lock);
}

/* ---- to SQL ------------------------------------------------------------------------------------------------- */

static Datum moment_or_null(Now now, Moment moment, bool *is_null) {
  *is_null = moment == MOMENT_NONE;
  return TimestampTzGetDatum(*is_null ? 0 : wall_of_moment(now, moment));
}

static const char *name_of(DatabaseState state) {
  switch (state) {
  case DATABASE_FREE:
  case DATABASE_UNKNOWN:
    return "unknown";
  case DATABASE_ANNOUNCED:
  case DATABASE_ACTIVE:
  case DATABASE_IDLE:
    return "usable";
  case DATABASE_OTHER_VERSION:
    return "other version";
  case DATABASE_NO_OUTBOX:
    return "missing";
  }
  return NULL;
}

SQL_FUNCTION(outbox_worker_health) {
  SharedState *shared = shared_state();
  WorkerHealth copy;
  TupleDesc desc = row_type_of(fcinfo, 10);
  Datum values[10];
  bool nulls[10] = {false};
  int waiting = 0, running = 0;
  const char *state = NULL;
  pid_t blocked_by = 0;

  memset(&copy, 0, sizeof(copy));
  Moment looked = MOMENT_NONE;
  Now now = now_read();
  if (shared) {
    LWLockAcquire(shared->lock, LW_SHARED);
    WorkerHealth *health = health_of(MyDatabaseId);
    if (health) {
      const DatabaseSlot *slot = &shared->databases[health - shared->health];
      copy = *health;
      state = name_of(slot->state);
      blocked_by = slot->blocked_by_ddl_pid;
    }
    looked = shared->launcher_looked;
    for (int i = 0; i < OUTBOX_MAX_DATABASES; i++)
      waiting += shared->databases[i].oid != InvalidOid && shared->health[i].wanted_since != MOMENT_NONE;
    for (int i = 0; i < OUTBOX_MAX_WORKERS; i++)
      running += shared->workers[i].pid != 0;
    LWLockRelease(shared->lock);
  }
  values[0] = moment_or_null(now, copy.wanted_since, &nulls[0]);
  values[1] = Int32GetDatum(copy.failures);
  values[2] = TimestampTzGetDatum(copy.failed_at);
  nulls[2] = copy.failed_at == 0;
  values[3] = moment_or_null(now, copy.next_start, &nulls[3]);
  values[4] = CStringGetTextDatum(copy.failure);
  nulls[4] = copy.failure[0] == '\0';
  values[5] = moment_or_null(now, looked, &nulls[5]);
  values[6] = Int32GetDatum(waiting);
  values[7] = Int32GetDatum(running);
  nulls[8] = state == NULL;
  values[8] = nulls[8] ? (Datum)0 : CStringGetTextDatum(state);
  values[9] = Int32GetDatum(blocked_by);
  nulls[9] = blocked_by == 0;
  PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}
