/* sink_statistics.cpp: returns the counters of the sinks in shared memory, a row for each sink of this database. */
#include "server/base/library_version.h"
#include "server/base/settings.h"
#include "server/base/sql_function.h"
#include "server/shmem/shared_state.h"

#include <math.h>

extern "C" {
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
}

/* A worker whose last loop is longer ago than its poll interval plus this time may have outdated information. */
static const int FRESH_MS = 5000;

/* The rate decays since the last update, so that it falls to 0 when no more events are delivered. */
static double faded_rate(const SinkStats *stats) {
  double seconds = (moment_now().us - stats->rate_at.us) / 1000000.0;

  return stats->rate * exp(-Max(seconds - 1, 0) / 10);
}

/* The workers of this database. */
typedef struct Workers {
  bool alive; /* at least one worker runs, so the sinks' states are current */
  /* Each shard has a worker, and all workers have looped lately: their low watermarks are current. */
  bool all_present;
  uint64 indexes;
} Workers;

static Workers get_workers(const SharedState *shared) {
  Workers workers = {false, false, 0};
  Moment now = moment_now();
  int shards = 0;
  bool fresh = true;

  for (int i = 0; i < OUTBOX_MAX_WORKERS; i++) {
    const WorkerSlot *slot = &shared->workers[i];
    if (slot->pid == 0 || slot->database != MyDatabaseId)
      continue;
    workers.alive = true;
    shards += (int)pg_popcount((const char *)&slot->shards, sizeof(slot->shards));
    fresh = fresh && slot->index < OUTBOX_COUNTED_WORKERS &&
            !moment_is_past(slot->last_loop, now, setting_poll_interval + FRESH_MS);
    if (slot->index < OUTBOX_COUNTED_WORKERS)
      workers.indexes |= UINT64CONST(1) << slot->index;
  }
  workers.all_present = fresh && shards == dispatch::SHARDS;
  return workers;
}

static int64 low_watermark(const SinkStats *stats, const Workers *workers) {
  int64 below = PG_INT64_MAX;

  for (int i = 0; i < OUTBOX_COUNTED_WORKERS; i++)
    if (workers->indexes & (UINT64CONST(1) << i))
      below = Min(below, stats->low_watermark[i]);
  return workers->all_present ? below : 0;
}

/* A row under construction: a value for each OUT parameter, in their order. */
enum { COLUMNS = 26 };

typedef struct Row {
  Datum values[COLUMNS];
  bool nulls[COLUMNS];
  int n;
} Row;

static void put(Row *row, Datum value, bool is_null) {
  Assert(row->n < COLUMNS);
  row->values[row->n] = value;
  row->nulls[row->n++] = is_null;
}

static void put_text(Row *row, const char *text) {
  put(row, text ? CStringGetTextDatum(text) : (Datum)0, text == NULL);
}

static void put_time(Row *row, TimestampTz at) {
  put(row, TimestampTzGetDatum(at), at == 0);
}

static void put_quantile(Row *row, const SinkStats *stats, double share) {
  double ms = 0;
  const bool known = latency_quantile(&stats->latency, share, &ms);

  put(row, Float8GetDatum(ms), !known);
}

/* The reasons that have occurred: with all of them for each sink, most time series would stay at 0. */
static void put_failures(Row *row, const SinkStats *stats) {
  Datum reasons[OB_REASONS], failures[OB_REASONS];
  int n = 0;

  for (int reason = 0; reason < OB_REASONS; reason++)
    if (stats->failures[reason] != 0) {
      reasons[n] = CStringGetTextDatum(ob_reason_name((ob_reason)reason));
      failures[n++] = Int64GetDatum(stats->failures[reason]);
    }
  put(row, PointerGetDatum(construct_array(reasons, n, TEXTOID, -1, false, TYPALIGN_INT)), false);
  put(row, PointerGetDatum(construct_array(failures, n, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE)),
      false);
}

static void put_latency(Row *row, const SinkStats *stats) {
  uint64 cumulative[LATENCY_PUBLISHED];
  Datum edges[LATENCY_PUBLISHED], counts[LATENCY_PUBLISHED];

  latency_publish(&stats->latency, cumulative);
  for (int i = 0; i < LATENCY_PUBLISHED; i++) {
    edges[i] = Float8GetDatum(latency_published_edges[i]);
    counts[i] = Int64GetDatum(cumulative[i]);
  }
  put(row,
      PointerGetDatum(
          construct_array(edges, LATENCY_PUBLISHED, FLOAT8OID, sizeof(float8), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE)),
      false);
  put(row,
      PointerGetDatum(
          construct_array(counts, LATENCY_PUBLISHED, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE)),
      false);
  put(row, Float8GetDatum(stats->latency.sum_us / 1000000.0), false);
  put(row, Int64GetDatum(latency_count(&stats->latency)), false);
}

/* NULLs if all that has ended is recorded. */
static void put_unrecorded(Row *row, const SinkStats *stats) {
  int64 n = 0, sent = 0;

  for (const Unrecorded &each : stats->unrecorded) {
    n += each.n;
    sent += each.sent;
  }
  put(row, Int64GetDatum(n), n == 0);
  put(row, TimestampTzGetDatum(stats->unrecorded_since), n == 0);
  put_text(row, n == 0 ? NULL : stats->record_error);
  put(row, Int64GetDatum(sent), n == 0);
}

static void put_sink(ReturnSetInfo *result, const SinkStats *stats, const char *state, int64 low_watermark) {
  Row row = {};
  int in_flight = 0;

  for (size_t i = 0; i < lengthof(stats->in_flight); i++)
    in_flight += stats->in_flight[i];
  put(&row, ObjectIdGetDatum(stats->server), false);
  put_text(&row, state);
  put(&row, Int32GetDatum(in_flight), false);
  put(&row, Int64GetDatum(stats->delivered), false);
  put(&row, Int64GetDatum(stats->retried), false);
  put(&row, Int64GetDatum(stats->failed), false);
  put(&row, Int64GetDatum(stats->redriven_late), false);
  put(&row, Int64GetDatum(stats->unanswered), false);
  put(&row, Float8GetDatum(faded_rate(stats)), false);
  put_quantile(&row, stats, 0.5);
  put_quantile(&row, stats, 0.99);
  put_text(&row, stats->last_error[0] ? stats->last_error : NULL);
  put_time(&row, stats->last_error_at);
  put_time(&row, shared_sink_paused_until(stats));
  put_time(&row, stats->since ? stats->since : shared_state()->made_at);
  put(&row, Int64GetDatum(low_watermark), false);
  put_unrecorded(&row, stats);
  put_failures(&row, stats);
  put_latency(&row, stats);
  Assert(row.n == COLUMNS);
  tuplestore_putvalues(result->setResult, result->setDesc, row.values, row.nulls);
}

SQL_FUNCTION(outbox_sink_statistics) {
  SharedState *shared = shared_state();
  ReturnSetInfo *result = rows_of(fcinfo, COLUMNS);

  if (shared == NULL)
    PG_RETURN_NULL();
  SinkStats *copy = palloc_object(SinkStats);
  LWLockAcquire(shared->lock, LW_SHARED);
  Workers workers = get_workers(shared);
  bool is_idle = shared_is_idle();
  LWLockRelease(shared->lock);
  for (int i = 0; i < OUTBOX_MAX_SINKS; i++) {
    LWLockAcquire(shared->lock, LW_SHARED);
    bool used = shared->sinks[i].database == MyDatabaseId;
    if (used)
      *copy = shared->sinks[i];
    LWLockRelease(shared->lock);
    if (used) /* the last worker exits only when its sinks are idle or stopped */
      put_sink(result, copy, !workers.alive && is_idle ? "idle" : shared_sink_state(copy, workers.indexes),
               low_watermark(copy, &workers));
  }
  PG_RETURN_NULL();
}
