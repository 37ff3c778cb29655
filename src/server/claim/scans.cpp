/*
 * scans.cpp: reads the rows that dispatch asks for (dispatch/main_scan.h, sink_scan.h, draining.h), and tells it of
 * each. All scans of a round read with one snapshot.
 */
#include "server/claim/scans.h"

#include "server/base/origin.h"
#include "server/claim/classify_row.h"
#include "server/inflight/blocking.h"
#include "server/inflight/dead_letters.h"
#include "server/sinks/dispatcher.h"

#include "dispatch/draining.h"

extern "C" {
#include "catalog/pg_type.h"
#include "utils/builtins.h"
}

using dispatch::SinkScan;

static const int DRAINING_KEYS_MAX = 64; /* of one sink, in one round */

static Statement read_main =
    make_statement<INT8OID, INT8OID>(PENDING_ROWS "position > $1 ORDER BY position LIMIT $2");
/* With row comparisons only one index is usable, also when the planner sees an empty table. So it never chooses a
 * scan of all positions. */
static Statement read_late = make_statement<XID8OID, INT8OID, INT8OID, INT8OID, INT8OID>(
    PENDING_ROWS "(origin, xact, position) > ($5, $1, $2) AND (origin, xact, position) <= ($5, $1, $3) "
                 "ORDER BY origin, xact, position LIMIT $4");
static Statement read_marked = make_statement<INT8OID, INT8OID, INT8OID>(
    PENDING_ROWS "blocked_by IS NOT NULL AND (blocked_by, position) > ($1, $2) "
                 "AND (blocked_by, position) < ($1 + 1, 0) ORDER BY blocked_by, position LIMIT $3");
static Statement read_due = make_statement<TEXTOID, TIMESTAMPTZOID, INT8OID, INT8OID>(
    PENDING_ROWS "sink = $1 AND available_at IS NOT NULL AND blocked_by IS NULL "
                 "AND (available_at, position) > ($2, $3) "
                 "ORDER BY available_at, position LIMIT $4");

/* ---- all sinks ------------------------------------------------------------------------------------------------ */

static bool visit_main(TupleTableSlot *slot, void *) {
  WorkerSink *sink;
  EventRow row;

  event_row_read(slot, &row);
  const RowVerdict verdict = classify_row(&row, RowScan::MAIN, &sink);
  return dispatcher().main_scan.row_read(row.position, verdict, sink ? sink->cursor : NULL);
}

bool scan_main(Snapshot snapshot) {
  dispatch::MainScan &scan = dispatcher().main_scan;
  dispatch::MainRead read;

  while (scan.begin_read(dispatcher().round, &read)) {
    Datum values[] = {Int64GetDatum(read.after), Int64GetDatum(read.limit)};
    statement_read(&read_main, values, snapshot, visit_main, NULL);
    scan.end_read();
  }
  return scan.more();
}

/* ---- one sink ------------------------------------------------------------------------------------------------- */

typedef struct Visit {
  WorkerSink *sink;
  SinkScan scan;
  uint64 key_hash; /* DRAINING: of the key that drains */
} Visit;

/* A blocker that a user moves to another key takes its group's number with it: the rows of both keys have that mark
 * then, and this read may have passed earlier rows of the other key. */
static bool is_of_other_key(const Visit *visit, const EventRow *row) {
  return visit->scan.scan == RowScan::DRAINING && row->key_hash != visit->key_hash;
}

static bool visit(TupleTableSlot *slot, void *context) {
  Visit *visit = (Visit *)context;
  RowVerdict verdict = RowVerdict::SKIP;
  EventRow row;

  event_row_read(slot, &row);
  if (visit->scan.ends_before(row.position, row.available_at, dispatcher().round.now.wall))
    return false;
  WorkerSink *sink = row.sink ? worker_sink_find(row.sink, row.sink_length) : NULL;
  if ((sink == visit->sink && !is_of_other_key(visit, &row)) || row.sink == NULL)
    verdict = classify_row(&row, visit->scan.scan, &sink);
  return visit->scan.row_read(row.position, row.available_at, verdict, sink != NULL);
}

void scan_late(WorkerSink *sink, Snapshot snapshot) {
  dispatch::LateTransactions *late = &sink->cursor->late;
  bool all = true; /* stops at an incomplete transaction, since the next one may have later events of the same keys */

  while (all && !late->empty() && sink->cursor->free_slots() > 0) {
    const dispatch::LateTransaction first = late->first();
    Visit state = {sink, {RowScan::LATE, sink->cursor, dispatch::READ_MAX, first.after, 0}, 0};
    Datum values[] = {UInt64GetDatum(first.xid), Int64GetDatum(first.after), Int64GetDatum(first.upto),
                      Int64GetDatum(state.scan.limit), Int64GetDatum(origin_here())};
    statement_read(&read_late, values, snapshot, visit, &state);
    all = state.scan.all_read();
    late->first_read(state.scan.last_position, all);
  }
}

static void drain(WorkerSink *sink, uint64 key_hash, Snapshot snapshot) {
  const dispatch::KeyId id = {sink->oid, key_hash};
  bool blocked;

  require_memory(dispatch::block_by_unrecorded(dispatcher(), id, &blocked));
  if (blocked)
    return;
  const BlockedKey *key = blocked_keys().find(sink->oid, key_hash);
  const dispatch::DrainStops stops =
      sink->common.dead_letters_block ? dead_letter_stops(sink, key_hash, snapshot) : dispatch::DrainStops();
  const int limit = Min(sink->cursor->free_slots() + 1, dispatch::READ_MAX);
  Visit state = {sink,
                 {RowScan::DRAINING, sink->cursor, limit, key->drained,
                  dispatch::drain_below(dispatcher(), *sink->cursor, id, stops)},
                 key_hash};
  Datum values[] = {Int64GetDatum(key->group), Int64GetDatum(key->drained), Int64GetDatum(limit)};

  statement_read(&read_marked, values, snapshot, visit, &state);
  require_memory(dispatch::drain_read_ended(dispatcher(), state.scan, id, stops));
}

bool scan_draining(WorkerSink *sink, Snapshot snapshot) {
  uint64 hashes[DRAINING_KEYS_MAX];
  int n = (int)blocked_keys().next_draining(sink->oid, hashes);

  for (int i = 0; i < n && sink->cursor->free_slots() > 0; i++)
    drain(sink, hashes[i], snapshot);
  return n == DRAINING_KEYS_MAX && sink->cursor->free_slots() > 0;
}

bool scan_due(WorkerSink *sink, Snapshot snapshot) {
  dispatch::DueCursor *due = &sink->cursor->due;
  const int limit = dispatch::read_limit(sink->cursor->free_slots());
  Visit state = {sink, {RowScan::DUE, sink->cursor, limit, 0, 0}, 0};

  if (due->next() > dispatcher().round.now.wall || sink->cursor->free_slots() <= 0)
    return false;
  Datum values[] = {PointerGetDatum(cstring_to_text(sink->name)), TimestampTzGetDatum(due->after()),
                    Int64GetDatum(due->after_position()), Int64GetDatum(limit)};
  due->begin_read();
  statement_read(&read_due, values, snapshot, visit, &state);
  if (state.scan.stopped || state.scan.all_read())
    return false;
  due->full();
  return true;
}
