/* views.cpp: what shared memory says to SQL. */
#include "enqueue.h"
#include "library_version.h"
#include "route.h"
#include "settings.h"
#include "shared_state.h"
#include "sql_function.h"
#include "wrappers.h"

#include <math.h>

extern "C" {
#include "access/htup_details.h"
#include "catalog/pg_foreign_server.h"
#include "funcapi.h"
#include "port/pg_bitutils.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
}

static Datum quantile_or_null(const SinkStats *stats, double share, bool *is_null) {
  double ms = 0;

  *is_null = !latency_quantile(&stats->latency, share, &ms);
  return Float8GetDatum(ms);
}

/* A rate that was true ten seconds ago fades when nothing is delivered any more. */
static double faded_rate(const SinkStats *stats) {
  double seconds = (GetCurrentTimestamp() - stats->rate_at) / 1000000.0;

  return stats->rate * exp(-Max(seconds - 1, 0) / 10);
}

static void put_sink(ReturnSetInfo *result, const SinkStats *stats) {
  Datum values[12];
  bool nulls[12] = {false};
  int in_flight = 0;

  for (size_t i = 0; i < lengthof(stats->in_flight); i++)
    in_flight += stats->in_flight[i];
  values[0] = ObjectIdGetDatum(stats->server);
  values[1] = CStringGetTextDatum(stats->state);
  nulls[1] = stats->state[0] == '\0';
  values[2] = Int32GetDatum(in_flight);
  values[3] = Int64GetDatum(stats->delivered);
  values[4] = Int64GetDatum(stats->retried);
  values[5] = Int64GetDatum(stats->failed);
  values[6] = Int64GetDatum(stats->redriven_late);
  values[7] = Float8GetDatum(faded_rate(stats));
  values[8] = quantile_or_null(stats, 0.5, &nulls[8]);
  values[9] = quantile_or_null(stats, 0.99, &nulls[9]);
  values[10] = CStringGetTextDatum(stats->last_error);
  nulls[10] = stats->last_error[0] == '\0';
  values[11] = TimestampTzGetDatum(stats->last_error_at);
  nulls[11] = stats->last_error_at == 0;
  tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* Is a worker of this database alive? Its sinks' states are its word. */
static bool have_worker(const SharedState *shared) {
  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++)
    if (shared->workers[i].pid != 0 && shared->workers[i].database == MyDatabaseId)
      return true;
  return false;
}

SQL_FUNCTION(outbox_sink_statistics) {
  ReturnSetInfo *result = rows_of(fcinfo, 12);
  SharedState *shared = shared_state();

  if (shared == NULL)
    PG_RETURN_NULL();
  SinkStats *copy = (SinkStats *)palloc(sizeof(SinkStats));
  LWLockAcquire(shared->lock, LW_SHARED);
  bool alive = have_worker(shared);
  LWLockRelease(shared->lock);
  for (int i = 0; i < OUTBOX_MAX_SINKS; i++) {
    LWLockAcquire(shared->lock, LW_SHARED);
    bool ours = shared->sinks[i].database == MyDatabaseId;
    if (ours)
      *copy = shared->sinks[i];
    LWLockRelease(shared->lock);
    if (!ours)
      continue;
    if (!alive)
      copy->state[0] = '\0';
    put_sink(result, copy);
  }
  PG_RETURN_NULL();
}

SQL_FUNCTION(outbox_worker_slots) {
  ReturnSetInfo *result = rows_of(fcinfo, 9);
  SharedState *shared = shared_state();

  if (shared == NULL)
    PG_RETURN_NULL();
  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    Datum values[9];
    bool nulls[9] = {false};
    char activity[sizeof(shared->workers[i].activity)];

    LWLockAcquire(shared->lock, LW_SHARED);
    const WorkerSlot *slot = &shared->workers[i];
    bool used = slot->pid != 0;
    values[0] = ObjectIdGetDatum(slot->database);
    values[1] = Int32GetDatum(slot->pid);
    values[2] = Int32GetDatum(slot->index);
    DatabaseSlot *database = used ? shared_database(slot->database, false) : NULL;
    values[3] = Int32GetDatum(database ? database->workers : 0);
    values[4] = Int64GetDatum(pg_popcount((const char *)&slot->lanes, sizeof(slot->lanes)));
    strlcpy(activity, slot->activity, sizeof(activity));
    values[6] = TimestampTzGetDatum(slot->started_at);
    values[7] = TimestampTzGetDatum(slot->last_loop_at);
    values[8] = Int64GetDatum(slot->memory);
    LWLockRelease(shared->lock);
    if (!used)
      continue;
    values[5] = CStringGetTextDatum(activity[0] ? activity : "starting");
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
  }
  PG_RETURN_NULL();
}

/* The days of SENT are kept until nobody wants them any more. */
static int64 longest_retention_ms(void) {
  int64 longest = (int64)setting_retention * 1000;
  int n;
  RouteSink *sinks = route_sinks(&n);

  for (int i = 0; i < n; i++) {
    const ob_option retention = {"retention", sinks[i].retention};
    ob_common common;
    ob_error error;
    if (retention.value && ob_common_options(sinks[i].kind, &retention, 1, &common, &error))
      longest = Max(longest, common.retention_ms);
  }
  return longest;
}

SQL_FUNCTION(outbox_library) {
  SharedState *shared = shared_state();
  TupleDesc desc = row_type_of(fcinfo, 8);
  Datum values[8];
  bool nulls[8] = {false};

  Interval *retention = (Interval *)palloc0(sizeof(Interval));
  retention->time = longest_retention_ms() * 1000;
  values[0] = CStringGetTextDatum(library_version());
  values[1] = BoolGetDatum(shared != NULL);
  values[2] = Int32GetDatum(shared ? shared->launcher_pid : 0);
  nulls[2] = shared == NULL || shared->launcher_pid == 0;
  values[3] = BoolGetDatum(shared != NULL && shared->out_of_slots);
  values[4] = Int64GetDatum(origin_here());
  values[5] = IntervalPGetDatum(retention);
  values[6] = CStringGetTextDatum(ob_library_versions());
  values[7] = BoolGetDatum(shared != NULL && shared_at_rest());
  PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}

SQL_FUNCTION(outbox_kafka_library) {
  TupleDesc desc = row_type_of(fcinfo, 3);
  ob_error advice;
  Datum values[3];
  bool nulls[3] = {false};

  memset(&advice, 0, sizeof(advice));
  ob_library_fitness fitness = ob_check_librdkafka(&advice);
  values[0] = CStringGetTextDatum(fitness == OB_LIBRARY_FIT         ? "ok"
                                  : fitness == OB_LIBRARY_DEFECTIVE ? "warning"
                                                                    : "error");
  values[1] = CStringGetTextDatum(psprintf(advice.detail[0] ? "%s. %s" : "%s.", advice.message, advice.detail));
  values[2] = CStringGetTextDatum(advice.hint);
  nulls[2] = advice.hint[0] == '\0';
  PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}
