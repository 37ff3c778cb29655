/* manual_counters.cpp: what outbox.ack() and outbox.nack() have done, for outbox.sinks and outbox.metrics(): in
 * shared memory, where the library is preloaded. Only what is committed counts. */
#include "server/base/sql_function.h"
#include "server/shmem/shared_state.h"

extern "C" {
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
}

/* The counts that a subtransaction adds when the transaction commits; few have more than one sink. */
typedef struct Pending {
  Oid server;
  SubTransactionId made_in;
  SinkStats *stats;
  uint64 delivered, retried, failed, redriven_late;
  Latency latency;
} Pending;
static Pending pending[8];
static int n_pending = 0;

static void add_counts(const Pending *one, Moment now) {
  SinkStats *stats = one->stats;

  if (stats->database != MyDatabaseId || stats->server != one->server)
    return;
  stats->delivered += one->delivered;
  stats->retried += one->retried;
  stats->failed += one->failed;
  stats->redriven_late += one->redriven_late;
  for (int i = 0; i < LATENCY_BUCKETS; i++)
    stats->latency.counts[i] += one->latency.counts[i];
  stats->latency.sum_us += one->latency.sum_us;
  shared_sink_rate(stats, one->delivered, now);
}

static void at_end_of_transaction(XactEvent event, void *) {
  if (n_pending == 0 || (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE))
    return;
  if (event == XACT_EVENT_COMMIT) {
    Moment now = moment_now();
    LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
    for (int i = 0; i < n_pending; i++)
      add_counts(&pending[i], now);
    LWLockRelease(shared_state()->lock);
  }
  n_pending = 0;
}

static void add_pending(Pending *sum, const Pending *one) {
  sum->delivered += one->delivered;
  sum->retried += one->retried;
  sum->failed += one->failed;
  sum->redriven_late += one->redriven_late;
  for (int i = 0; i < LATENCY_BUCKETS; i++)
    sum->latency.counts[i] += one->latency.counts[i];
  sum->latency.sum_us += one->latency.sum_us;
}

static Pending *find_pending(Oid server, SubTransactionId made_in) {
  for (int i = 0; i < n_pending; i++)
    if (pending[i].server == server && pending[i].made_in == made_in)
      return &pending[i];
  return NULL;
}

/* A savepoint that is rolled back counts nothing; one that is released passes its counts to its parent. */
static void at_end_of_subtransaction(SubXactEvent event, SubTransactionId ended, SubTransactionId parent, void *) {
  if (event != SUBXACT_EVENT_ABORT_SUB && event != SUBXACT_EVENT_COMMIT_SUB)
    return;
  for (int i = n_pending - 1; i >= 0; i--) {
    if (pending[i].made_in < ended)
      continue;
    if (event == SUBXACT_EVENT_COMMIT_SUB) {
      Pending *sum = find_pending(pending[i].server, parent);
      if (sum == NULL) {
        pending[i].made_in = parent;
        continue;
      }
      add_pending(sum, &pending[i]);
    }
    pending[i] = pending[--n_pending];
  }
}

/* Of the current subtransaction. NULL: nothing is counted. */
static Pending *pending_of(Oid server) {
  static bool registered = false;

  Pending *known = find_pending(server, GetCurrentSubTransactionId());
  if (known)
    return known;
  if (shared_state() == NULL || n_pending == (int)lengthof(pending))
    return NULL;
  SinkStats *stats = shared_sink_stats(MyDatabaseId, server, true);
  if (stats == NULL)
    return NULL;
  if (!registered) {
    RegisterXactCallback(at_end_of_transaction, NULL);
    RegisterSubXactCallback(at_end_of_subtransaction, NULL);
  }
  registered = true;
  Pending *one = &pending[n_pending++];
  memset((void *)one, 0, sizeof(*one));
  one->server = server;
  one->made_in = GetCurrentSubTransactionId();
  one->stats = stats;
  return one;
}

/* outbox_internal.count_delivered(server, latencies, late): how long each event took, in microseconds, and how many
 * came late.
 */
SQL_FUNCTION(outbox_count_delivered) {
  Pending *one = pending_of(PG_GETARG_OID(0));
  Datum *latencies;
  int n;

  if (one == NULL)
    PG_RETURN_VOID();
  deconstruct_array(PG_GETARG_ARRAYTYPE_P(1), INT8OID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &latencies, NULL, &n);
  for (int i = 0; i < n; i++)
    latency_add(&one->latency, DatumGetInt64(latencies[i]));
  one->delivered += (uint64)n;
  one->redriven_late += (uint64)PG_GETARG_INT64(2);
  PG_RETURN_VOID();
}

/* outbox_internal.count_failed(server, dead, error). The error stays visible when the transaction fails. */
SQL_FUNCTION(outbox_count_failed) {
  if (Pending *one = pending_of(PG_GETARG_OID(0))) {
    (PG_GETARG_BOOL(1) ? one->failed : one->retried)++;
    shared_sink_error(one->stats, text_to_cstring(PG_GETARG_TEXT_PP(2)), GetCurrentTimestamp());
  }
  PG_RETURN_VOID();
}
