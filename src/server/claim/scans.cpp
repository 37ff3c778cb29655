/*
 * scans.cpp: reads rows in the ways of dispatch::RowScan. All scans of a round read with one snapshot, and none reads
 * past a row for which there was no room: that would send a later event of its key before it.
 */
#include "server/claim/scans.h"

#include "server/base/origin.h"
#include "server/claim/classify_row.h"
#include "server/inflight/blocking.h"
#include "server/inflight/dead_letters.h"
#include "server/sinks/dispatcher.h"

extern "C" {
#include "catalog/pg_type.h"
#include "utils/builtins.h"
}

static const int DRAINING_KEYS_MAX = 64;

static Statement read_main = {PENDING_ROWS "position > $1 ORDER BY position LIMIT $2", 2, {INT8OID, INT8OID}, NULL};
/* Row comparisons leave the planner one index, also when it plans on an empty table: it never walks the positions. */
static Statement read_late = {PENDING_ROWS
                              "(origin, xact, position) > ($5, $1, $2) AND (origin, xact, position) <= ($5, $1, $3) "
                              "ORDER BY origin, xact, position LIMIT $4",
                              5,
                              {XID8OID, INT8OID, INT8OID, INT8OID, INT8OID},
                              NULL};
static Statement read_held = {PENDING_ROWS
                              "blocked_by IS NOT NULL AND (blocked_by, position) > ($1, $2) "
                              "AND (blocked_by, position) < ($1 + 1, 0) ORDER BY blocked_by, position LIMIT $3",
                              3,
                              {INT8OID, INT8OID, INT8OID},
                              NULL};
static Statement read_due = {PENDING_ROWS "sink = $1 AND available_at IS NOT NULL AND blocked_by IS NULL "
                                          "AND (available_at, position) > ($2, $3) "
                                          "ORDER BY available_at, position LIMIT $4",
                             4,
                             {TEXTOID, TIMESTAMPTZOID, INT8OID, INT8OID},
                             NULL};

typedef struct ReadState {
  RowScan scan;
  WorkerSink *sink; /* whose scan it is; NULL for MAIN */
  int n_reading;    /* MAIN: sinks that still take part */
  int n_rows;
  int64 last_position;
  bool stopped;
  int64 before; /* DRAINING: only rows below this one */
  bool reached; /* DRAINING: there is one at or after it */
} ReadState;

/* Whoever takes an event that has no sink yet reads up to it. */
static void stop_before(ReadState *state, int64 position) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  for (int i = 0; i < n; i++)
    if (sinks[i]->cursor->reading() && sinks[i]->cursor->unrouted_at() == position) {
      sinks[i]->cursor->passed(position - 1);
      sinks[i]->cursor->end_read(false);
      state->n_reading--;
    }
}

static bool visit_main(TupleTableSlot *slot, void *context) {
  ReadState *state = (ReadState *)context;
  WorkerSink *sink;
  EventRow row;

  event_row_read(slot, &row);
  state->n_rows++;
  state->last_position = row.position;
  const RowVerdict verdict = classify_row(&row, RowScan::MAIN, &sink);
  if (verdict == RowVerdict::CLAIM)
    sink->cursor->passed(row.position);
  else if (verdict == RowVerdict::STOP && sink == NULL)
    stop_before(state, row.position);
  else if (verdict == RowVerdict::STOP) {
    sink->cursor->end_read(true);
    state->n_reading--;
  }
  return state->n_reading > 0;
}

/* One read serves all sinks that have come equally far, which is all of them but those that lag. */
static bool read_from(int64 cursor, Snapshot snapshot) {
  ReadState state = {RowScan::MAIN, NULL, 0, 0, cursor, false, 0, false};
  int n, room = 0;
  WorkerSink **sinks = worker_sinks_all(&n);

  for (int i = 0; i < n; i++) {
    if (!sinks[i]->cursor->may_read() || sinks[i]->cursor->position() != cursor)
      continue;
    sinks[i]->cursor->begin_read();
    state.n_reading++;
    room += sinks[i]->cursor->free_slots();
  }
  int limit = Min(Max(Min(room, dispatcher().round.free_events) * 2, READ_MIN), READ_MAX);
  Datum values[] = {Int64GetDatum(cursor), Int64GetDatum(limit)};
  statement_read(&read_main, values, snapshot, visit_main, &state);
  for (int i = 0; i < n; i++)
    if (sinks[i]->cursor->reading()) {
      sinks[i]->cursor->passed(state.last_position);
      sinks[i]->cursor->end_read(state.n_rows == limit);
    }
  return state.n_rows == limit;
}

bool scan_main(Snapshot snapshot) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);
  int64 done = -1;
  bool more = false;

  /* Smallest cursor first; each distinct one once. */
  for (;;) {
    int64 next = PG_INT64_MAX;
    for (int i = 0; i < n; i++)
      if (sinks[i]->cursor->may_read() && sinks[i]->cursor->position() > done)
        next = Min(next, sinks[i]->cursor->position());
    if (next == PG_INT64_MAX || dispatcher().round.free_events <= 0 || dispatcher().round.free_bytes <= 0)
      return more;
    /* What a read leaves behind moves on, maybe to the next group's place: read on from there only next time. */
    int64 cursors_above = PG_INT64_MAX;
    for (int i = 0; i < n; i++)
      if (sinks[i]->cursor->may_read() && sinks[i]->cursor->position() > next)
        cursors_above = Min(cursors_above, sinks[i]->cursor->position());
    more |= read_from(next, snapshot);
    if (cursors_above == PG_INT64_MAX)
      return more;
    done = cursors_above - 1;
  }
}

/* For the scans of one sink: the sink's own place moves with each row that needs no second look. A late row without
 * a sink may have been enqueued before this one was made: the sink waits until it is routed. */
static bool visit_of_sink(TupleTableSlot *slot, void *context) {
  ReadState *state = (ReadState *)context;
  WorkerSink *sink;
  EventRow row;

  event_row_read(slot, &row);
  state->n_rows++;
  if (state->scan == RowScan::DUE && row.available_at > dispatcher().round.now.wall) {
    state->sink->cursor->due.stop_before(row.available_at);
    state->stopped = true;
    return false;
  }
  if (state->scan == RowScan::DRAINING && row.position >= state->before) {
    state->stopped = state->reached = true;
    return false;
  }
  sink = row.sink ? worker_sink_find(row.sink, row.sink_length) : NULL;
  if ((sink == state->sink || row.sink == NULL) && classify_row(&row, state->scan, &sink) == RowVerdict::STOP &&
      (sink != NULL || state->sink->cursor->unrouted_at() == row.position)) {
    state->stopped = true;
    state->sink->cursor->set_has_backlog(sink != NULL);
    if (state->scan == RowScan::DUE)
      state->sink->cursor->due.stop_before(row.available_at);
    return false;
  }
  state->last_position = row.position;
  if (state->scan == RowScan::DUE)
    state->sink->cursor->due.passed(row.available_at, row.position);
  return true;
}

void scan_late(WorkerSink *sink, Snapshot snapshot) {
  bool all = true;

  while (all && !sink->cursor->late.empty() && sink->cursor->free_slots() > 0) {
    const dispatch::LateTransaction late = sink->cursor->late.first();
    ReadState state = {RowScan::LATE, sink, 0, 0, late.after, false, 0, false};
    Datum values[] = {UInt64GetDatum(late.xid), Int64GetDatum(late.after), Int64GetDatum(late.upto),
                      Int64GetDatum(READ_MAX), Int64GetDatum(origin_here())};
    statement_read(&read_late, values, snapshot, visit_of_sink, &state);
    all = !state.stopped && state.n_rows < READ_MAX; /* else the next one may have later events of its keys */
    sink->cursor->late.first_read(state.last_position, all);
  }
}

bool scan_draining(WorkerSink *sink, Snapshot snapshot) {
  const dispatch::LockedRows &locked_rows = dispatcher().locked_rows;
  uint64 hashes[DRAINING_KEYS_MAX];
  int n = (int)blocked_keys().next_draining(sink->oid, hashes);

  for (int i = 0; i < n && sink->cursor->free_slots() > 0; i++) {
    const BlockedKey *key = blocked_keys().find(sink->oid, hashes[i]);
    int64 dead = sink->common.hold ? dead_letter_first(sink, hashes[i]) : PG_INT64_MAX;
    /* After a beginning, rows of the key may lie unmarked before the marked ones: the cursor sees them first. */
    int64 locked = locked_rows.first_of_key(sink->oid, hashes[i]);
    int64 before = Min(Min(locked, dead), sink->cursor->position() + 1);
    ReadState state = {RowScan::DRAINING, sink, 0, 0, key->drained, false, before, false};
    int limit = Min(sink->cursor->free_slots() + 1, READ_MAX);
    Datum values[] = {Int64GetDatum(key->group), Int64GetDatum(key->drained), Int64GetDatum(limit)};
    statement_read(&read_held, values, snapshot, visit_of_sink, &state);
    blocked_keys().drained_to(sink->oid, hashes[i], state.last_position);
    bool all = state.reached || (!state.stopped && state.n_rows < limit); /* of those below `before` */
    if (!all || key->state == KeyState::BLOCKED)
      continue;
    locked = locked_rows.first_of_key(sink->oid, hashes[i]); /* this read may have found more */
    if (dead != PG_INT64_MAX) {
      if (before == dead || (!sink->cursor->has_backlog() && locked > dead))
        key_block(sink->oid, hashes[i], dead); /* a dead letter is next */
    } else if (!state.stopped && locked == dispatch::POSITION_NONE) {
      blocked_keys().forget(sink->oid, hashes[i]); /* nothing is left behind it: new rows may come straight */
    }
  }
  return n == DRAINING_KEYS_MAX && sink->cursor->free_slots() > 0;
}

bool scan_due(WorkerSink *sink, Snapshot snapshot) {
  ReadState state = {RowScan::DUE, sink, 0, 0, 0, false, 0, false};

  dispatch::DueCursor *due = &sink->cursor->due;

  if (due->next() > dispatcher().round.now.wall || sink->cursor->free_slots() <= 0)
    return false;
  due->begin_read();
  int limit = Min(Max(sink->cursor->free_slots() + 1, READ_MIN), READ_MAX);
  Datum values[] = {PointerGetDatum(cstring_to_text(sink->name)), TimestampTzGetDatum(due->after()),
                    Int64GetDatum(due->after_position()), Int64GetDatum(limit)};
  statement_read(&read_due, values, snapshot, visit_of_sink, &state);
  if (state.stopped || state.n_rows < limit)
    return false;
  due->full();
  return true;
}
