/*
 * early_retry.cpp: reads the rows of a pass of early retries. A row that the main scan has yet to see ends the read:
 * earlier rows of its key may stand below it.
 */
#include "server/claim/early_retry.h"

#include "server/claim/classify_row.h"
#include "server/event/event_row.h"
#include "server/inflight/in_flight.h"
#include "server/storage/sql.h"

extern "C" {
#include "catalog/pg_type.h"
#include "utils/builtins.h"
}

static Statement read_waiting = make_statement<TEXTOID, TIMESTAMPTZOID, INT8OID, INT8OID>(
    "SELECT " EVENT_ROW_COLUMNS
    ", pg_catalog.substr(last_error, 1, 288) FROM outbox.events_pending WHERE sink = $1 AND "
    "available_at IS NOT NULL AND blocked_by IS NULL AND (available_at, position) > ($2, $3) "
    "ORDER BY available_at, position LIMIT $4");

/* Only the beginning is compared, and read from the TOAST table. */
static_assert(dispatch::EarlyRetry::REASON_MAX == 288);

typedef struct Visit {
  WorkerSink *sink;
  int n_rows;
  bool stopped;
} Visit;

static bool is_freed(const WorkerSink *sink, const EventRow *row) {
  bool no_error;
  const Datum error = slot_getattr(row->slot, EVENT_ROW_N_COLUMNS + 1, &no_error);
  dispatch::WaitingRow facts = {row->available_at, row->failed_at, {}};

  if (!no_error) {
    const text *value = DatumGetTextPP(error);
    facts.error = {VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value)};
  }
  return sink->cursor->early_retry.frees(facts, dispatcher().round.now.wall);
}

static bool visit(TupleTableSlot *slot, void *context) {
  Visit *state = (Visit *)context;
  dispatch::SinkCursor *cursor = state->sink->cursor;
  WorkerSink *sink = state->sink;
  EventRow row;

  event_row_read(slot, &row);
  state->n_rows++;
  const TimestampTz due = row.available_at;
  if (is_freed(sink, &row)) {
    row.available_at = DT_NOBEGIN;
    const RowVerdict verdict =
        row.position > cursor->position() ? RowVerdict::STOP : classify_row(&row, RowScan::DUE, &sink);
    if (verdict == RowVerdict::CLAIM)
      in_flight().find(row.position)->early = true;
    if (verdict == RowVerdict::STOP) {
      state->stopped = true;
      cursor->set_has_backlog(true);
      return false;
    }
  }
  cursor->early_retry.passed(due, row.position);
  return true;
}

/* Does the sink have deferred events that are not recorded yet? The pass would miss them, since their rows do not
 * show the reason yet. */
static bool any_to_be_recorded(const WorkerSink *sink) {
  for (const InFlightEvent *event = in_flight().first_ended(); event; event = event->next)
    if (event->sink == &sink->events && event->outcome == Outcome::DEFERRED && !is_recorded(event))
      return true;
  return false;
}

bool scan_early_retry(WorkerSink *sink, Snapshot snapshot) {
  dispatch::EarlyRetry *pass = &sink->cursor->early_retry;
  Visit state = {sink, 0, false};
  const int limit = dispatch::read_limit(sink->cursor->free_slots());

  if (!pass->going() || sink->cursor->free_slots() <= 0)
    return false;
  Datum values[] = {PointerGetDatum(cstring_to_text(sink->name)), TimestampTzGetDatum(pass->after()),
                    Int64GetDatum(pass->after_position()), Int64GetDatum(limit)};
  statement_read(&read_waiting, values, snapshot, visit, &state);
  if (state.stopped)
    return false;
  pass->end_read(state.n_rows == limit || any_to_be_recorded(sink));
  return pass->going();
}
