/*
 * early_retry.cpp: claims events before their time when what they wait for is over: a missing topic has come, an
 * outage has ended, outbox.resume() was called. Such events are due far apart (up to an hour), so that they are not
 * written over and over; one pass over what is not yet due follows when the reason ends.
 */
#include "server/claim/early_retry.h"

#include "server/claim/classify_row.h"
#include "server/claim/scans.h"
#include "server/event/event_row.h"
#include "server/inflight/in_flight.h"
#include "server/storage/sql.h"

extern "C" {
#include "catalog/pg_type.h"
#include "utils/builtins.h"
}

static Statement read_waiting = {
    "SELECT " EVENT_ROW_COLUMNS ", last_attempt_at, last_error FROM outbox.events_pending WHERE sink = $1 AND "
    "available_at IS NOT NULL AND blocked_by IS NULL AND (available_at, position) > ($2, $3) "
    "ORDER BY available_at, position LIMIT $4",
    4,
    {TEXTOID, TIMESTAMPTZOID, INT8OID, INT8OID},
    NULL};

typedef struct Visit {
  WorkerSink *sink;
  int n_rows;
  bool stopped;
} Visit;

/* Not those that began to wait after it. (A time to come is one of before the clock was set back.) */
static bool is_freed(const WorkerSink *sink, const EventRow *row) {
  bool never_tried, no_error;

  if (row->attempts == 0 || row->available_at <= dispatcher().round.now.wall)
    return false; /* merely scheduled; due anyway */
  TimestampTz tried_at = DatumGetTimestampTz(slot_getattr(row->slot, EVENT_ROW_N_COLUMNS + 1, &never_tried));
  Datum error = slot_getattr(row->slot, EVENT_ROW_N_COLUMNS + 2, &no_error);
  if (never_tried || (tried_at > sink->resumed.since && tried_at <= dispatcher().round.now.wall) || no_error)
    return false;
  if (sink->resumed.tried_since != 0)
    return tried_at >= sink->resumed.tried_since;
  text *reason = DatumGetTextPP(error);
  size_t length = strlen(sink->resumed.reason);
  return VARSIZE_ANY_EXHDR(reason) >= length && memcmp(VARDATA_ANY(reason), sink->resumed.reason, length) == 0;
}

static bool visit(TupleTableSlot *slot, void *context) {
  Visit *state = (Visit *)context;
  WorkerSink *sink = state->sink;
  EventRow row;

  event_row_read(slot, &row);
  state->n_rows++;
  TimestampTz place = row.available_at;
  if (is_freed(sink, &row)) {
    /* What lies beyond the cursor, that has to see first. */
    state->stopped = row.position > sink->cursor;
    row.available_at = DT_NOBEGIN;
    const RowVerdict verdict = state->stopped ? RowVerdict::STOP : classify_row(&row, RowScan::DUE, &sink);
    if (verdict == RowVerdict::CLAIM)
      in_flight().find(row.position)->early = true;
    state->stopped = verdict == RowVerdict::STOP;
    if (state->stopped) {
      state->sink->starved = true;
      return false;
    }
  }
  state->sink->resumed.after = place;
  state->sink->resumed.after_position = row.position;
  return true;
}

/* Their rows are not yet written: they would be overlooked. */
static bool any_to_be_recorded(const WorkerSink *sink) {
  for (const InFlightEvent *event = in_flight().first_ended(); event; event = event->next)
    if (event->sink == &sink->events && event->outcome == Outcome::DEFERRED && !is_recorded(event))
      return true;
  return false;
}

bool scan_resumed(WorkerSink *sink, Snapshot snapshot) {
  Visit state = {sink, 0, false};
  int limit = Min(Max(sink->room + 1, READ_MIN), READ_MAX);

  if (!sink->resumed.going || sink->room <= 0)
    return false;
  Datum values[] = {PointerGetDatum(cstring_to_text(sink->name)), TimestampTzGetDatum(sink->resumed.after),
                    Int64GetDatum(sink->resumed.after_position), Int64GetDatum(limit)};
  statement_read(&read_waiting, values, snapshot, visit, &state);
  if (state.stopped)
    return false;
  sink->resumed.going = state.n_rows == limit || any_to_be_recorded(sink);
  return sink->resumed.going;
}
