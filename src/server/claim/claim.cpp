/*
 * claim.cpp: a round reads rows in each of the ways of dispatch::RowScan, classifies each row, and then checks or
 * locks the rows that it has chosen. It serves all sinks in one transaction, so that a row is read once; it claims at
 * most 4 MB of events.
 */
#include "server/claim/claim.h"

#include "server/base/fault_point.h"
#include "server/base/is_worker.h"
#include "server/base/origin.h"
#include "server/claim/batches.h"
#include "server/claim/claim_lock.h"
#include "server/claim/early_retry.h"
#include "server/claim/late_commits.h"
#include "server/claim/locked_rows.h"
#include "server/claim/rescan.h"
#include "server/claim/scans.h"
#include "server/enqueue/position.h"
#include "server/event/event_row.h"
#include "server/inflight/blocking.h"
#include "server/inflight/dead_letters.h"
#include "server/inflight/decision_log.h"
#include "server/inflight/in_flight.h"
#include "server/sinks/dispatcher.h"
#include "server/sinks/own_rows.h"
#include "server/sinks/shard_handoff.h"
#include "server/sinks/sink_cursor.h"
#include "server/sinks/worker_sinks.h"
#include "server/storage/sql.h"

extern "C" {
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "utils/inval.h"
#include "utils/snapmgr.h"
}

static Statement read_failing =
    make_statement<>(PENDING_ROWS "available_at IS NOT NULL AND blocked_by IS NULL AND last_attempt_at IS NOT NULL");
static Statement read_groups =
    make_statement<>("SELECT DISTINCT ON (blocked_by) " EVENT_ROW_COLUMNS
                     " FROM outbox.events_pending WHERE blocked_by IS NOT NULL ORDER BY blocked_by, position");

/* ---- fresh shards -------------------------------------------------------------------------------------------- */

static bool is_fresh(const EventRow *row, WorkerSink **sink) {
  return row_is_ours(row, sink) && (*sink)->common.ordered &&
         (*sink)->shards.is_fresh(dispatch::shard_of(row->key_hash, row->position));
}

static bool visit_failing(TupleTableSlot *slot, void *) {
  WorkerSink *sink;
  EventRow row;

  event_row_read(slot, &row);
  if (is_fresh(&row, &sink))
    key_block(sink->oid, row.key_hash, row.position);
  return true;
}

static bool visit_group(TupleTableSlot *slot, void *) {
  WorkerSink *sink;
  EventRow row;

  event_row_read(slot, &row);
  if (is_fresh(&row, &sink))
    key_drain(sink->oid, row.key_hash, row.blocked_by);
  return true;
}

/* Learns from the rows of fresh shards which of their keys are blocked. */
static void read_fresh_shards(Snapshot snapshot) {
  statement_read(&read_failing, NULL, snapshot, visit_failing, NULL);
  statement_read(&read_groups, NULL, snapshot, visit_group, NULL);
  dispatcher().rescan_cursor.restart();
  OUTBOX_FAULT_POINT("shard.before_read");
  shards_read();
}

/* ---- a round ------------------------------------------------------------------------------------------------ */

static void add_returned(const InFlightEvent *event) {
  require_memory(
      dispatcher().marks.add_returned({event->position, event->row, 0, sink_of(event)->oid, event->key_hash}));
}

void claim_returned_each(void (*visit)(Oid sink, int64 position)) {
  for (const dispatch::Mark &mark : dispatcher().marks.returned())
    visit(mark.sink, mark.position);
}

static void rewind_returned(const dispatch::Mark &mark) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  for (int i = 0; i < n; i++)
    if (sinks[i]->oid == mark.sink)
      sink_cursor_rewind(sinks[i], mark.position);
}

/* Before rows are read: a key that has become free meanwhile must not drain past the returned events. */
static void mark_returned(void) {
  require_memory(dispatcher().mark_returned());
  for (const dispatch::Mark &mark : dispatcher().marks.returned()) {
    const WorkerSink *sink = worker_sink_of(mark.sink);
    if (mark.group == 0)
      rewind_returned(mark);
    else
      decision_log(EVENT_BLOCKED, mark.position, sink ? sink->name : NULL, "its key is blocked",
                   blocked_keys().find(mark.sink, mark.key_hash)->blocker);
  }
}

/* All that a round could find in the tables, when nothing waits in the worker's memory. */
static Statement ask_for_news = make_statement<XID8OID, INT8OID, INT8OID, XID8ARRAYOID, INT8OID>(
    "SELECT EXISTS (SELECT FROM outbox_internal.rescan_queue WHERE (xact, position) > ($1, $2)) "
    "OR EXISTS (SELECT FROM outbox.events_pending WHERE position > $3) "
    "OR EXISTS (SELECT FROM pg_catalog.unnest($4) AS x CROSS JOIN LATERAL (SELECT FROM outbox.events_pending AS e "
    "WHERE (e.origin, e.xact, e.position) >= ($5, x, 0) AND (e.origin, e.xact, e.position) <= ($5, x, $3) LIMIT 1) "
    "AS late)");

static bool visit_answer(TupleTableSlot *slot, void *news) {
  *(bool *)news = DatumGetBool(slot->tts_values[0]);
  return true;
}

/* One query instead of the several of a round: an idle worker runs only this one. */
static bool is_news(Snapshot snapshot) {
  int n, n_ended;
  WorkerSink **sinks = worker_sinks_all(&n);
  int64 cursor = PG_INT64_MAX;
  bool news = true;

  for (int i = 0; i < n; i++) {
    if (sink_is_stopped(sinks[i]->state))
      continue;
    cursor = Min(cursor, sinks[i]->cursor->position());
    if (late_commits_can_go_on(sinks[i]) || sinks[i]->cursor->has_backlog() || sinks[i]->cursor->early_retry.going())
      return true;
  }
  if (n == 0 || !dispatcher().marks.returned().empty() || shards_any_fresh() || blocked_keys().any())
    return true;
  const dispatch::RescanPlace rescanned = dispatcher().rescan_cursor.after();
  Datum values[] = {UInt64GetDatum(rescanned.xact), Int64GetDatum(rescanned.position), Int64GetDatum(cursor),
                    late_commits_ended(snapshot, &n_ended), Int64GetDatum(origin_here())};
  statement_read(&ask_for_news, values, snapshot, visit_answer, &news);
  if (!news)
    late_commits_note_running(snapshot);
  return news;
}

bool claim_has_news(void) {
  Assert(server_is_worker && IsTransactionState());
  SPI_connect();
  Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
  bool news = is_news(snapshot);
  UnregisterSnapshot(snapshot);
  SPI_finish();
  return news;
}

/* A sink may have been altered between worker_sinks_reload() and the snapshot, so that it takes unrouted events that
 * its cursor has passed: events that were enqueued since would come before them. The round begins anew. */
static void check_sinks(void) {
  AcceptInvalidationMessages();
  if (worker_sinks_stale())
    ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
                    errmsg_internal("sinks were changed while the round began")));
}

bool claim_events(Now now, bool *rescan) {
  Assert(server_is_worker && IsTransactionState());
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);
  bool more = false;

  batches_begin();
  dispatcher().begin_round(now, in_flight_free(), Min(in_flight_free_bytes(), (int64)ROUND_BYTES));
  mark_returned();
  OUTBOX_FAULT_POINT("claim.begin");
  SPI_connect();
  if (shards_any_fresh())
    dead_letters_stale();
  dead_letters_refresh();
  /* One snapshot for all reads of the round: the late scan and the main scan must meet without a gap. */
  Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
  check_sinks();
  if (shards_any_fresh())
    read_fresh_shards(snapshot);
  late_commits_find(snapshot);
  for (int i = 0; i < n; i++) {
    if (sinks[i]->cursor->free_slots() <= 0)
      continue;
    /* Before the late scan: this snapshot does not see the rows that the late scan marks, and a key that drains after
     * it would be free although they wait. */
    more |= scan_draining(sinks[i], snapshot);
    scan_late(sinks[i], snapshot);
    more |= late_commits_can_go_on(sinks[i]) &&
            sinks[i]->cursor->free_slots() > 0; /* the main scan waits for a long late scan */
    more |= scan_due(sinks[i], snapshot);
    more |= scan_early_retry(sinks[i], snapshot);
  }
  locked_rows_claim(snapshot);
  if (*rescan) {
    bool check_again = rescan_check_blockers(snapshot);
    *rescan = rescan_claim(snapshot, &more) || check_again;
    more |= check_again;
  }
  more |= scan_main(snapshot);
  for (int i = 0; i < n; i++) /* keys drain up to the cursor */
    more |= sinks[i]->cursor->free_slots() > 0 && sinks[i]->cursor->advanced() &&
            blocked_keys().any_draining(sinks[i]->oid);
  more |= dispatcher().round.free_bytes <= 0 && in_flight_free() > 0; /* the round is full, and the sinks are not */
  OUTBOX_FAULT_POINT("claim.before_lock");
  if (dispatcher().round.n_claimed > 0 || !dispatcher().marks.all().empty())
    claim_lock_and_mark();
  OUTBOX_FAULT_POINT("claim.locked");
  more |= dispatcher().round.dropped;
  UnregisterSnapshot(snapshot);
  SPI_finish();
  return more;
}

void claim_return(InFlightEvent *event) {
  WorkerSink *sink = sink_of(event), *given_to = worker_sink_of(event->given_to);
  int64 position = event->position;
  const BlockedKey *key = blocked_keys().find_before(sink->oid, event->key_hash, position);

  decision_log(EVENT_RETURNED, position, sink->name, NULL, 0);
  blocked_keys().drain_again_from(sink->oid, event->key_hash, position);
  if (given_to)
    sink_cursor_rewind(given_to, position); /* it passed the row while the event was in flight */
  if (event->early)
    sink->cursor->early_retry.returned();
  if (key == NULL)
    sink_cursor_rewind(sink, position);
  else if (event->blocked_by != key->group)
    add_returned(event);
  worker_sink_event_returned(sink, event->bytes);
  in_flight().give_back(event);
}

void claim_settle(void) {
  Assert(!IsTransactionState());
  dispatcher().commit_round();
}

void claim_give_back(void) {
  Assert(!IsTransactionState());
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  OUTBOX_SIGNAL_POINT("claim.give_back");
  if (!dispatcher().round.open)
    return;
  for (int i = 0; i < n; i++) {
    for (int j = 0; j < sinks[i]->n_batch; j++)
      if (sinks[i]->batch_events[j])
        claim_return(sinks[i]->batch_events[j]);
    sinks[i]->n_batch = 0;
  }
  for (const dispatch::Mark &mark : dispatcher().marks.returned())
    rewind_returned(mark);
  dispatcher().roll_back_round();
  for (int i = 0; i < n; i++)
    low_watermark_tell(sinks[i]);
}

static Statement read_highest = make_statement<>(
    "SELECT pg_catalog.max(position) FROM (SELECT (SELECT pg_catalog.max(position) FROM outbox.events_pending) AS "
    "position UNION ALL SELECT (SELECT pg_catalog.max(position) FROM outbox.events_failed)) AS highest");

static bool visit_highest(TupleTableSlot *slot, void *) {
  if (!slot->tts_isnull[0])
    position_seen(DatumGetInt64(slot->tts_values[0]));
  return false;
}

/* The sequence may have been set back while the server was down. */
static void learn_positions(void) {
  if (position_known())
    return;
  SPI_connect();
  statement_read(&read_highest, NULL, InvalidSnapshot, visit_highest, NULL);
  SPI_finish();
}

void claim_init(int64 origin) {
  own_rows_init(origin);
  learn_positions();
}

void claim_tell_error(const char *error) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  for (int i = 0; i < n; i++)
    if (sinks[i]->stats)
      shared_sink_error(sinks[i]->stats, error, GetCurrentTimestamp());
}
