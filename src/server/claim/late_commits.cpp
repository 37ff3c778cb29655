/*
 * late_commits.cpp: one query per round finds the transactions that have ended since the last round and left rows at
 * or below the farthest cursor. Usually there are none.
 */
#include "server/claim/late_commits.h"

#include "server/base/origin.h"
#include "server/claim/unrouted.h"
#include "server/sinks/dispatcher.h"
#include "server/sinks/sink_cursor.h"
#include "server/sinks/worker_sinks.h"
#include "server/storage/sql.h"

extern "C" {
#include "access/transam.h"
#include "catalog/pg_type.h"
#include "utils/array.h"
}

static Statement find_rows = make_statement<XID8ARRAYOID, INT8OID, INT8OID>(
    "SELECT x, has_rows.position FROM pg_catalog.unnest($1) AS x CROSS JOIN LATERAL "
    "(SELECT e.position FROM outbox.events_pending AS e "
    "WHERE (e.origin, e.xact, e.position) >= ($3, x, 0) "
    "AND (e.origin, e.xact, e.position) <= ($3, x, $2) "
    "ORDER BY e.origin, e.xact, e.position LIMIT 1) AS has_rows");

/* With epochs; allocated in the current memory context. */
static dispatch::TransactionSnapshot transactions_of(Snapshot snapshot) {
  const uint64 next = U64FromFullTransactionId(ReadNextFullTransactionId());
  uint64 *running = (uint64 *)palloc(sizeof(uint64) * Max(snapshot->xcnt, 1));

  for (uint32 i = 0; i < snapshot->xcnt; i++)
    running[i] = dispatch::xid_with_epoch(snapshot->xip[i], next);
  return {running, snapshot->xcnt, dispatch::xid_with_epoch(snapshot->xmax, next), next};
}

void late_commits_note_running(Snapshot snapshot) {
  require_memory(dispatcher().late_commits.note_running(transactions_of(snapshot)));
}

uint64 late_commits_full_xid(TransactionId xid) {
  return dispatch::xid_with_epoch(xid, U64FromFullTransactionId(ReadNextFullTransactionId()));
}

static bool visit_late(TupleTableSlot *slot, void *) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  for (int i = 0; i < n; i++) {
    require_memory(
        sinks[i]->cursor->late_commit(DatumGetUInt64(slot->tts_values[0]), DatumGetInt64(slot->tts_values[1])));
    low_watermark_tell(sinks[i]);
  }
  return true;
}

bool late_commits_can_go_on(const WorkerSink *sink) {
  return !sink->cursor->late.empty() && !unrouted_is_stuck(sink->cursor->unrouted_at());
}

Datum late_commits_ended(Snapshot snapshot, int *n) {
  dispatch::LateCommits &commits = dispatcher().late_commits;

  require_memory(commits.find_ended(transactions_of(snapshot)));
  *n = commits.ended_count();
  Datum *ended = (Datum *)palloc(sizeof(Datum) * Max(*n, 1));
  for (int i = 0; i < *n; i++)
    ended[i] = UInt64GetDatum(commits.ended(i));
  return PointerGetDatum(construct_array(ended, *n, XID8OID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

void late_commits_find(Snapshot snapshot) {
  Assert(in_spi());
  int64 farthest = 0;
  int n_ended, n;
  WorkerSink **sinks = worker_sinks_all(&n);

  for (int i = 0; i < n; i++)
    farthest = Max(farthest, sinks[i]->cursor->position());
  Datum values[] = {late_commits_ended(snapshot, &n_ended), Int64GetDatum(farthest), Int64GetDatum(origin_here())};
  if (n_ended > 0 && farthest > 0)
    statement_read(&find_rows, values, snapshot, visit_late, NULL);
  late_commits_note_running(snapshot);
}
