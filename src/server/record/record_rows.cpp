/*
 * record_rows.cpp: rows move by DELETE and INSERT and never by an UPDATE of `status`: one concurrent move between
 * partitions makes everybody's SKIP LOCKED fail.
 */
#include "server/record/record_rows.h"

#include "server/base/fault_point.h"
#include "server/event/status_sql.h"
#include "server/process/worker_slot.h"
#include "server/sinks/worker_sinks.h"
#include "server/storage/sql.h"

extern "C" {
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "utils/array.h"
#include "utils/builtins.h"
}

static Statement delete_sent = make_statement<TIDARRAYOID>("DELETE FROM outbox.events_pending WHERE ctid = ANY ($1)");
static Statement keep_sent = make_statement<TIDARRAYOID, TIMESTAMPTZOID, INT8ARRAYOID, TEXTARRAYOID>(
    "WITH gone AS (DELETE FROM outbox.events_pending WHERE ctid = ANY ($1) RETURNING *) "
    "INSERT INTO outbox.events (" MOVED_COLUMNS
    ", overtaken_by, attempts, last_error, last_attempt_at, status, sent_at, acknowledgement) "
    "SELECT " MOVED_COLUMNS ", overtaken_by, attempts, last_error, last_attempt_at, 'SENT', $2, nullif(a.text, '') "
    "FROM gone JOIN unnest($3, $4) AS a (at, text) ON a.at = position");
static Statement move_to_dead_letters = make_statement<TIDARRAYOID, INT8ARRAYOID, TEXTARRAYOID, TIMESTAMPTZARRAYOID>(
    "WITH gone AS (DELETE FROM outbox.events_pending WHERE ctid = ANY ($1) RETURNING *) "
    "INSERT INTO outbox.events (" MOVED_COLUMNS ", overtaken_by, attempts, last_error, last_attempt_at, status) "
    "SELECT " MOVED_COLUMNS ", overtaken_by, " ONE_MORE_ATTEMPT ", f.error, f.ended, 'FAILED' FROM gone "
    "JOIN unnest($2, $3, $4) AS f (at, error, ended) ON f.at = position");
static Statement reschedule =
    make_statement<TIDARRAYOID, TEXTARRAYOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID, INT8ARRAYOID, INT8ARRAYOID>(
        "UPDATE outbox.events_pending AS e SET attempts = CASE WHEN f.spent > 0 THEN " ONE_MORE_ATTEMPT
        " ELSE attempts END, last_error = f.error, "
        "last_attempt_at = f.ended, "
        "available_at = f.next, blocked_by = nullif(f.blocked_by, 0), "
        "redrive_late = nullif(redrive_late, false) "
        "FROM unnest($1, $2, $3, $4, $5, $6) AS f (place, error, ended, next, blocked_by, spent) "
        "WHERE e.ctid = f.place");

/* Before their rows are changed. Of a day at most a gigabyte is kept, so that a storm of failures cannot fill the
 * disk.
 */
static Statement keep_failures =
    make_statement<TIDARRAYOID, TEXTARRAYOID, TIMESTAMPTZARRAYOID, INT8ARRAYOID, INT8ARRAYOID, INT4OID>(
        "INSERT INTO outbox_internal.failed_attempts "
        "(day, event_id, position, sink, attempt, started_at, ended_at, worker, error) "
        "SELECT outbox_internal.failure_day(f.ended), e.id, e.position, e.sink, CASE WHEN f.spent > 0 "
        "THEN " ONE_MORE_ATTEMPT " END, f.ended - f.took * interval '1 ms', f.ended, $6, left(f.error, 1000) "
        "FROM unnest($1, $2, $3, $4, $5) AS f (place, error, ended, took, spent) "
        "JOIN outbox.events_pending AS e ON e.ctid = f.place "
        "WHERE outbox_internal.has_room_for_failures()");

/* A row that is still there would be taken for recorded, and never be looked at again. */
static void write_rows(Statement *statement, const Datum *values, int n) {
  const uint64 written = statement_write(statement, values, NULL, NULL);

  if (written != (uint64)n)
    ereport(ERROR, (errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
                    errmsg("a trigger on outbox.events prevents the recording of an event"),
                    errdetail("A BEFORE trigger that returns NULL makes PostgreSQL skip the row without an error."),
                    errhint("Let the trigger return OLD when it is fired for DELETE, and otherwise NEW.")));
}

RecordedRows recorded_rows(int max) {
  return {(ItemPointerData *)palloc(sizeof(ItemPointerData) * Max(max, 1)),
          (InFlightEvent **)palloc(sizeof(InFlightEvent *) * Max(max, 1)), 0};
}

void recorded_rows_add(RecordedRows *rows, InFlightEvent *event, ItemPointerData ctid) {
  rows->tids[rows->n] = ctid;
  rows->events[rows->n++] = event;
}

static Datum errors_of(const RecordedRows *rows) {
  Datum *values = (Datum *)palloc(sizeof(Datum) * rows->n);

  for (int i = 0; i < rows->n; i++)
    values[i] = CStringGetTextDatum(rows->events[i]->error ? rows->events[i]->error : "");
  return text_array(values, rows->n);
}

static Datum positions_of(const RecordedRows *rows) {
  int64 *positions = (int64 *)palloc(sizeof(int64) * rows->n);

  for (int i = 0; i < rows->n; i++)
    positions[i] = rows->events[i]->position;
  return int8_array(positions, rows->n);
}

static Datum times_array(Datum *times, int n) {
  return PointerGetDatum(construct_array(times, n, TIMESTAMPTZOID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

static Datum ends_of(const RecordedRows *rows) {
  Datum *values = (Datum *)palloc(sizeof(Datum) * rows->n);

  for (int i = 0; i < rows->n; i++)
    values[i] = TimestampTzGetDatum(rows->events[i]->ended_at);
  return times_array(values, rows->n);
}

/* A wait is no attempt. */
static bool is_attempt(const InFlightEvent *event) {
  return event->outcome != Outcome::DEFERRED;
}

static void keep_failed_attempts(const RecordedRows *rows) {
  int64 *took = (int64 *)palloc(sizeof(int64) * rows->n);
  int64 *spent = (int64 *)palloc(sizeof(int64) * rows->n);

  for (int i = 0; i < rows->n; i++) {
    took[i] = rows->events[i]->took_ms;
    spent[i] = is_attempt(rows->events[i]);
  }
  Datum values[] = {tid_array(rows->tids, rows->n),
                    errors_of(rows),
                    ends_of(rows),
                    int8_array(took, rows->n),
                    int8_array(spent, rows->n),
                    Int32GetDatum(worker_slot()->index)};
  (void)statement_write(&keep_failures, values, NULL, NULL);
}

void recorded_rows_delete(const RecordedRows *rows) {
  Assert(in_spi());
  if (rows->n == 0)
    return;
  Datum values[] = {tid_array(rows->tids, rows->n)};
  write_rows(&delete_sent, values, rows->n);
}

void recorded_rows_keep(const RecordedRows *rows, Now now) {
  Assert(in_spi());
  if (rows->n == 0)
    return;
  Datum values[] = {tid_array(rows->tids, rows->n), TimestampTzGetDatum(now.wall), positions_of(rows),
                    errors_of(rows)};
  OUTBOX_FAULT_POINT("record.before_keep");
  write_rows(&keep_sent, values, rows->n);
}

/* Whether a dead letter blocks its key is asked now: its sink may have been altered since the event ended. */
void recorded_rows_move_to_dead_letters(const RecordedRows *rows) {
  Assert(in_spi());
  if (rows->n == 0)
    return;
  for (int i = 0; i < rows->n; i++) {
    const InFlightEvent *event = rows->events[i];
    require_memory(dispatcher().dead_letter(event->sink->id, event->key_hash, event->position,
                                            sink_of(event)->common.dead_letters_block));
  }
  Datum values[] = {tid_array(rows->tids, rows->n), positions_of(rows), errors_of(rows), ends_of(rows)};
  OUTBOX_FAULT_POINT("record.before_dead_letter");
  keep_failed_attempts(rows);
  write_rows(&move_to_dead_letters, values, rows->n);
}

/* By the schedule of its sink. */
static int64 retry_delay_ms(const InFlightEvent *event) {
  return ob_retry_delay_ms(sink_of(event)->common.retry, event->attempts + 1, event->slow_retry,
                           pg_prng_uint64(&pg_global_prng_state));
}

void recorded_rows_reschedule(const RecordedRows *rows, Now now) {
  Assert(in_spi());
  if (rows->n == 0)
    return;
  Datum *times = (Datum *)palloc(sizeof(Datum) * rows->n);
  int64 *groups = (int64 *)palloc(sizeof(int64) * rows->n);
  int64 *spent = (int64 *)palloc(sizeof(int64) * rows->n);

  for (int i = 0; i < rows->n; i++) {
    const InFlightEvent *event = rows->events[i];
    const TimestampTz next = dispatch::next_attempt(event, retry_delay_ms(event), now.wall);
    times[i] = TimestampTzGetDatum(next);
    sink_of(event)->cursor->due.expect(next);
    groups[i] = dispatcher().group_behind_blocker(event);
    spent[i] = is_attempt(event);
  }
  Datum values[] = {
      tid_array(rows->tids, rows->n), errors_of(rows),           ends_of(rows), times_array(times, rows->n),
      int8_array(groups, rows->n),    int8_array(spent, rows->n)};
  OUTBOX_FAULT_POINT("record.before_retry");
  keep_failed_attempts(rows);
  write_rows(&reschedule, values, rows->n);
}
