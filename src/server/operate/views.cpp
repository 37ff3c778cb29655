/* views.cpp: returns shared memory to the SQL views. */
#include "server/base/library_version.h"
#include "server/base/origin.h"
#include "server/base/settings.h"
#include "server/base/sql_function.h"
#include "server/catalog/route.h"
#include "server/catalog/wrappers.h"
#include "server/event/key_hash.h"
#include "server/shmem/shared_state.h"

extern "C" {
#include "access/htup_details.h"
#include "catalog/pg_foreign_server.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "utils/wait_event.h"
}

SQL_FUNCTION(outbox_forget_statistics) {
  if (shared_state() == NULL)
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("there are no statistics to reset"),
                    errdetail("They are kept in shared memory, and the library was not preloaded."),
                    errhint("Add outbox to shared_preload_libraries in postgresql.conf and restart the server.")));
  shared_sink_reset(MyDatabaseId, PG_ARGISNULL(0) ? InvalidOid : PG_GETARG_OID(0));
  PG_RETURN_VOID();
}

/* Returns false if the sink's endpoint has not asked for a pause. */
SQL_FUNCTION(outbox_end_pause) {
  SinkStats *stats = shared_sink_stats(MyDatabaseId, PG_GETARG_OID(0), false);

  if (stats == NULL)
    PG_RETURN_BOOL(false);
  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
  const bool is_paused = shared_sink_paused_until(stats) != 0;
  stats->pauses_ended += is_paused;
  LWLockRelease(shared_state()->lock);
  PG_RETURN_BOOL(is_paused);
}

/* The wall time of the worker's last loop. It is the same at each call, and is corrected when the clock was set
 * since. */
static TimestampTz last_loop_of(const WorkerSlot *slot) {
  TimestampTz by_monotonic_clock = wall_of_moment(now_read(), slot->last_loop);
  int64 clock_step = by_monotonic_clock - slot->last_loop_at;

  return clock_step < -USECS_PER_SEC || clock_step > USECS_PER_SEC ? by_monotonic_clock : slot->last_loop_at;
}

/* The name of the wait event of a process that waits for the disk now; NULL: it does not. */
static const char *disk_wait_of(int pid) {
  const PGPROC *process = BackendPidGetProc(pid);
  const uint32 waits = process ? *(const volatile uint32 *)&process->wait_event_info : 0;
  const char *name = pgstat_get_wait_event(waits);

  if (name == NULL)
    return NULL;
  return strcmp(pgstat_get_wait_event_type(waits), "IO") == 0 || strcmp(name, "WALWrite") == 0 ? name : NULL;
}

SQL_FUNCTION(outbox_worker_slots) {
  ReturnSetInfo *result = rows_of(fcinfo, 12);
  SharedState *shared = shared_state();

  if (shared == NULL)
    PG_RETURN_NULL();
  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    Datum values[12];
    bool nulls[12] = {false};
    char activity[sizeof(shared->workers[i].activity)], routing_error[sizeof(shared->workers[i].routing_error)];

    LWLockAcquire(shared->lock, LW_SHARED);
    const WorkerSlot *slot = &shared->workers[i];
    const pid_t pid = slot->pid;
    values[0] = ObjectIdGetDatum(slot->database);
    values[1] = Int32GetDatum(pid);
    values[2] = Int32GetDatum(slot->index);
    DatabaseSlot *database = pid != 0 ? shared_database(slot->database, false) : NULL;
    values[3] = Int32GetDatum(database ? database->workers : 0);
    values[4] = Int64GetDatum(pg_popcount((const char *)&slot->shards, sizeof(slot->shards)));
    strlcpy(activity, slot->activity, sizeof(activity));
    values[6] = TimestampTzGetDatum(slot->started_at);
    values[7] = TimestampTzGetDatum(last_loop_of(slot));
    values[8] = Int64GetDatum(slot->memory);
    values[9] = TimestampTzGetDatum(slot->routing_since);
    nulls[9] = slot->routing_since == 0;
    strlcpy(routing_error, slot->routing_error, sizeof(routing_error));
    LWLockRelease(shared->lock);
    if (pid == 0)
      continue;
    values[5] = CStringGetTextDatum(activity[0] ? activity : "starting");
    values[10] = CStringGetTextDatum(routing_error);
    nulls[10] = routing_error[0] == '\0';
    const char *disk_wait = disk_wait_of(pid);
    nulls[11] = disk_wait == NULL;
    values[11] = disk_wait ? CStringGetTextDatum(disk_wait) : (Datum)0;
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
  }
  PG_RETURN_NULL();
}

/* Which worker serves the shard of a key or, without one, of a position. */
SQL_FUNCTION(outbox_shard_of) {
  SharedState *shared = shared_state();
  TupleDesc desc = row_type_of(fcinfo, 4);
  bool is_running = false, is_owned = false;
  uint64 hash = 0;

  if (!PG_ARGISNULL(0)) {
    const text *key = PG_GETARG_TEXT_PP(0);
    hash = key_hash_of(VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
  }
  const int shard = dispatch::shard_of(hash, PG_GETARG_INT64(1));
  if (shared == NULL)
    PG_RETURN_NULL();
  LWLockAcquire(shared->lock, LW_SHARED);
  const DatabaseSlot *database = shared_database(MyDatabaseId, false);
  const int workers = database ? database->workers : 0;
  for (int i = 0; i < OUTBOX_MAX_WORKERS && workers > 0; i++) {
    const WorkerSlot *slot = &shared->workers[i];
    if (slot->pid == 0 || slot->database != MyDatabaseId)
      continue;
    is_running |= slot->index == shard % workers;
    is_owned |= slot->shards.has(shard);
  }
  LWLockRelease(shared->lock);
  if (workers == 0)
    PG_RETURN_NULL();
  Datum values[] = {Int32GetDatum(shard % workers), Int32GetDatum(workers), BoolGetDatum(is_running),
                    BoolGetDatum(is_owned)};
  bool nulls[] = {false, false, false, false};
  PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}

/* Daily partitions of events_sent are kept for the longest retention of all sinks. */
static int64 longest_retention_ms(void) {
  int64 longest = (int64)setting_retention * 1000;
  int n;
  RouteSink *sinks = route_sinks(&n);

  for (int i = 0; i < n; i++) {
    const ob_option retention = {"retention", sinks[i].retention};
    ob_common common;
    ob_error error;
    if (retention.value && ob_kind(sinks[i].kind)->common_options(sinks[i].kind, &retention, 1, &common, &error))
      longest = Max(longest, common.retention_ms);
  }
  return longest;
}

SQL_FUNCTION(outbox_library) {
  SharedState *shared = shared_state();
  TupleDesc desc = row_type_of(fcinfo, 7);
  Datum values[7];
  bool nulls[7] = {false};

  Interval *retention = palloc0_object(Interval);
  retention->time = longest_retention_ms() * 1000;
  values[0] = CStringGetTextDatum(library_version());
  values[1] = BoolGetDatum(shared != NULL);
  values[2] = Int32GetDatum(shared ? shared->launcher_pid : 0);
  nulls[2] = shared == NULL || shared->launcher_pid == 0;
  values[3] = BoolGetDatum(shared != NULL && shared->out_of_slots);
  values[4] = Int64GetDatum(origin_here());
  values[5] = IntervalPGetDatum(retention);
  values[6] = BoolGetDatum(shared != NULL && shared_is_idle());
  PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}
