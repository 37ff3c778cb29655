/*
 * record_rows.cpp: rows move by DELETE and INSERT and never by an UPDATE of `status`: one concurrent move between
 * partitions makes everybody's SKIP LOCKED fail.
 */
#include "server/record/record_table.h"

#include "server/base/fault_point.h"
#include "server/event/status_sql.h"
#include "server/inflight/in_flight.h"
#include "server/process/worker_slot.h"
#include "server/storage/sql.h"

extern "C" {
#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
}

static Statement delete_sent = make_statement<TIDARRAYOID>("DELETE FROM outbox.events_pending WHERE ctid = ANY ($1)");
static Statement keep_sent = make_statement<TIDARRAYOID, TIMESTAMPTZOID, INT8ARRAYOID, TEXTARRAYOID>(
    "WITH gone AS (DELETE FROM outbox.events_pending WHERE ctid = ANY ($1) RETURNING *) "
    "INSERT INTO outbox.events (" MOVED_COLUMNS
    ", overtaken_by, attempts, last_error, last_attempt_at, status, sent_at, acknowledgement) "
    "SELECT " MOVED_COLUMNS ", overtaken_by, attempts, last_error, last_attempt_at, 'SENT', $2, a.text "
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
        "FROM unnest($1, $2, $3, $4, $5, $6) AS f (ctid, error, ended, next, blocked_by, spent) "
        "WHERE e.ctid = f.ctid");

/* Before their rows are changed. Of a day at most a gigabyte is kept, so that a storm of failures cannot fill the
 * disk.
 */
static Statement keep_failures = make_statement<TIDARRAYOID, TEXTARRAYOID, TIMESTAMPTZARRAYOID, INT8ARRAYOID,
                                                INT8ARRAYOID, INT4OID, INT8ARRAYOID, TIMESTAMPTZARRAYOID>(
    "INSERT INTO outbox_internal.failed_attempts "
    "(day, event_id, position, sink, attempt, started_at, ended_at, worker, error, key_hash, blocks_until) "
    "SELECT outbox_internal.failure_day(f.ended), e.id, e.position, e.sink, CASE WHEN f.spent > 0 "
    "THEN " ONE_MORE_ATTEMPT " END, f.ended - f.took * interval '1 ms', f.ended, $6, left(f.error, 1000), "
    "nullif(f.key, 0), CASE WHEN f.key <> 0 THEN f.next END "
    "FROM unnest($1, $2, $3, $4, $5, $7, $8) AS f (ctid, error, ended, took, spent, key, next) "
    "JOIN outbox.events_pending AS e ON e.ctid = f.ctid "
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

using Rows = std::span<const dispatch::RowToWrite>;

/* The arguments that the statements have in common, each an array with a value for each row. */
static Datum ctids_of(Rows rows) {
  ItemPointerData *ctids = (ItemPointerData *)palloc(sizeof(ItemPointerData) * rows.size());

  for (size_t i = 0; i < rows.size(); i++)
    ctids[i] = ctid_of(&rows[i].handle);
  return tid_array(ctids, (int)rows.size());
}

static Datum errors_of(Rows rows) {
  Datum *values = (Datum *)palloc(sizeof(Datum) * rows.size());

  for (size_t i = 0; i < rows.size(); i++)
    values[i] = CStringGetTextDatum(rows[i].event->error ? rows[i].event->error : "");
  return text_array(values, (int)rows.size());
}

template <class ValueOf> static Datum int8s_of(Rows rows, ValueOf value_of) {
  int64 *values = (int64 *)palloc(sizeof(int64) * rows.size());

  for (size_t i = 0; i < rows.size(); i++)
    values[i] = value_of(rows[i]);
  return int8_array(values, (int)rows.size());
}

template <class ValueOf> static Datum times_of(Rows rows, ValueOf value_of) {
  Datum *values = (Datum *)palloc(sizeof(Datum) * rows.size());

  for (size_t i = 0; i < rows.size(); i++)
    values[i] = TimestampTzGetDatum(value_of(rows[i]));
  return PointerGetDatum(
      construct_array(values, (int)rows.size(), TIMESTAMPTZOID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

static Datum positions_of(Rows rows) {
  return int8s_of(rows, [](const dispatch::RowToWrite &row) { return row.event->position; });
}

/* Failed deliveries, as arrays. */
typedef struct Failures {
  Datum ctids, errors, ends, spent;
} Failures;

static Datum next_attempts_of(Rows rows) {
  return times_of(rows, [](const dispatch::RowToWrite &row) { return row.next_attempt; });
}

static Failures failures_of(Rows rows) {
  return {ctids_of(rows), errors_of(rows),
          times_of(rows, [](const dispatch::RowToWrite &row) { return row.event->ended_at; }),
          /* a wait is no attempt */
          int8s_of(rows, [](const dispatch::RowToWrite &row) { return row.event->outcome != Outcome::DEFERRED; })};
}

/* `blocks`: the events are tried again, and block their keys until then. */
static void keep_failed_attempts(Rows rows, const Failures *failures, bool blocks) {
  Datum values[] = {
      failures->ctids,
      failures->errors,
      failures->ends,
      int8s_of(rows, [](const dispatch::RowToWrite &row) { return row.event->took_ms; }),
      failures->spent,
      Int32GetDatum(worker_slot()->index),
      int8s_of(rows, [=](const dispatch::RowToWrite &row) { return blocks ? (int64)row.event->key_hash : 0; }),
      next_attempts_of(rows)};
  (void)statement_write(&keep_failures, values, NULL, NULL);
}

static void delete_rows(Rows rows) {
  Datum values[] = {ctids_of(rows)};

  write_rows(&delete_sent, values, (int)rows.size());
}

/* With how long the attempt took, and its worker: only rows that are kept pay for that. */
static Datum acknowledgements_of(Rows rows) {
  Datum *values = (Datum *)palloc(sizeof(Datum) * rows.size());

  for (size_t i = 0; i < rows.size(); i++) {
    const InFlightEvent *event = rows[i].event;
    char *attempt = psprintf("%d ms, worker %d", event->took_ms, worker_slot()->index);
    values[i] = CStringGetTextDatum(event->error ? psprintf("%s (%s)", event->error, attempt) : attempt);
  }
  return text_array(values, (int)rows.size());
}

static void keep_rows(Rows rows, Now now) {
  Datum values[] = {ctids_of(rows), TimestampTzGetDatum(now.wall), positions_of(rows), acknowledgements_of(rows)};

  OUTBOX_FAULT_POINT("record.before_keep");
  write_rows(&keep_sent, values, (int)rows.size());
}

static void make_dead_letters(Rows rows) {
  const Failures failures = failures_of(rows);
  Datum values[] = {failures.ctids, positions_of(rows), failures.errors, failures.ends};

  OUTBOX_FAULT_POINT("record.before_dead_letter");
  keep_failed_attempts(rows, &failures, false);
  write_rows(&move_to_dead_letters, values, (int)rows.size());
}

static void reschedule_rows(Rows rows) {
  const Failures failures = failures_of(rows);
  Datum values[] = {failures.ctids,
                    failures.errors,
                    failures.ends,
                    next_attempts_of(rows),
                    int8s_of(rows, [](const dispatch::RowToWrite &row) { return row.group; }),
                    failures.spent};

  OUTBOX_FAULT_POINT("record.before_retry");
  keep_failed_attempts(rows, &failures, true);
  write_rows(&reschedule, values, (int)rows.size());
}

void RecordTable::write(dispatch::Disposition disposition, Rows rows) {
  Assert(in_spi() && !rows.empty());
  switch (disposition) {
  case dispatch::Disposition::DELETE:
    delete_rows(rows);
    break;
  case dispatch::Disposition::KEEP:
    keep_rows(rows, now_);
    break;
  case dispatch::Disposition::DEAD_LETTER:
    make_dead_letters(rows);
    break;
  case dispatch::Disposition::RETRY:
    reschedule_rows(rows);
    break;
  case dispatch::Disposition::FORGET:
  case dispatch::Disposition::LATER:
    Assert(false);
  }
}
