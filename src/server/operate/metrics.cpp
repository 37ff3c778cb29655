/* metrics.cpp: returns the counters in shared memory that outbox.sinks, outbox.doctor() and metrics show. */
#include "server/base/library_version.h"
#include "server/base/sql_function.h"
#include "server/shmem/shared_state.h"

extern "C" {
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"
}

/* Calls `put` with a copy of the counters of each sink of this database. */
static Datum each_sink(FunctionCallInfo fcinfo, int columns,
                       void (*put)(ReturnSetInfo *result, const SinkStats *stats)) {
  SharedState *shared = shared_state();
  ReturnSetInfo *result = rows_of(fcinfo, columns);

  if (shared == NULL)
    PG_RETURN_NULL();
  SinkStats *copy = palloc_object(SinkStats);
  for (int i = 0; i < OUTBOX_MAX_SINKS; i++) {
    LWLockAcquire(shared->lock, LW_SHARED);
    bool in_database = shared->sinks[i].database == MyDatabaseId;
    if (in_database)
      *copy = shared->sinks[i];
    LWLockRelease(shared->lock);
    if (in_database)
      put(result, copy);
  }
  PG_RETURN_NULL();
}

/* Returns only reasons that have occurred: with all of them for each sink, most time series would stay at 0. */
static void put_failures(ReturnSetInfo *result, const SinkStats *stats) {
  for (int reason = 0; reason < OB_REASONS; reason++) {
    if (stats->failures[reason] == 0)
      continue;
    Datum values[] = {ObjectIdGetDatum(stats->server), CStringGetTextDatum(ob_reason_name((ob_reason)reason)),
                      Int64GetDatum(stats->failures[reason])};
    bool nulls[lengthof(values)] = {false};
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
  }
}

static void put_latency(ReturnSetInfo *result, const SinkStats *stats) {
  uint64 cumulative[LATENCY_PUBLISHED];
  Datum edges[LATENCY_PUBLISHED], counts[LATENCY_PUBLISHED];

  latency_publish(&stats->latency, cumulative);
  for (int i = 0; i < LATENCY_PUBLISHED; i++) {
    edges[i] = Float8GetDatum(latency_published_edges[i]);
    counts[i] = Int64GetDatum(cumulative[i]);
  }
  Datum values[] = {ObjectIdGetDatum(stats->server),
                    PointerGetDatum(construct_array(edges, LATENCY_PUBLISHED, FLOAT8OID, sizeof(float8),
                                                    FLOAT8PASSBYVAL, TYPALIGN_DOUBLE)),
                    PointerGetDatum(construct_array(counts, LATENCY_PUBLISHED, INT8OID, sizeof(int64),
                                                    FLOAT8PASSBYVAL, TYPALIGN_DOUBLE)),
                    Float8GetDatum(stats->latency.sum_us / 1000000.0), Int64GetDatum(latency_count(&stats->latency))};
  bool nulls[lengthof(values)] = {false};
  tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* Sinks of which all that has ended is recorded are left out. */
static void put_unrecorded(ReturnSetInfo *result, const SinkStats *stats) {
  int64 n = 0, sent = 0;

  for (const Unrecorded &each : stats->unrecorded) {
    n += each.n;
    sent += each.sent;
  }
  if (n == 0)
    return;
  Datum values[] = {ObjectIdGetDatum(stats->server), Int64GetDatum(n), TimestampTzGetDatum(stats->unrecorded_since),
                    CStringGetTextDatum(stats->record_error), Int64GetDatum(sent)};
  bool nulls[lengthof(values)] = {false};
  tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

SQL_FUNCTION(outbox_sink_unrecorded) {
  return each_sink(fcinfo, 5, put_unrecorded);
}

SQL_FUNCTION(outbox_sink_failures) {
  return each_sink(fcinfo, 3, put_failures);
}

SQL_FUNCTION(outbox_sink_latency) {
  return each_sink(fcinfo, 5, put_latency);
}
