/*
 * claim_reads.cpp: the statements with which a round reads, and the row as dispatch sees it. Of most keys a filter in
 * memory knows that they have no dead letter (dispatch/key_filter.h), so these are not looked up.
 */
#include "server/claim/claim_table.h"

#include "server/event/event_row.h"
#include "server/inflight/events_in_flight.h"
#include "server/storage/sql.h"

extern "C" {
#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
}

using dispatch::RowsOf;

#define FAILED_ROWS "SELECT " EVENT_ROW_COLUMNS " FROM outbox.events_failed"
#define OF_KEY "sink = $1 AND pg_catalog.hashtextextended(partition_key, 0) = $2"
#define IS_TROUBLED "(last_attempt_at IS NOT NULL OR redrive_late IS NOT NULL)"
#define WITH_TIME                                                                                                    \
  "sink = $1 AND available_at IS NOT NULL AND blocked_by IS NULL AND (available_at, position) > ($2, $3) "           \
  "ORDER BY available_at, position LIMIT $4"

/* Only the beginning of an error is compared, and read from the TOAST table. */
static_assert(dispatch::EarlyRetry::REASON_MAX == 288);

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
static Statement read_due = make_statement<TEXTOID, TIMESTAMPTZOID, INT8OID, INT8OID>(PENDING_ROWS WITH_TIME);
static Statement read_waiting = make_statement<TEXTOID, TIMESTAMPTZOID, INT8OID, INT8OID>(
    "SELECT " EVENT_ROW_COLUMNS
    ", pg_catalog.substr(last_error, 1, 288) FROM outbox.events_pending WHERE " WITH_TIME);
static Statement read_positions = make_statement<INT8ARRAYOID>(PENDING_ROWS "position = ANY ($1) ORDER BY position");
static Statement read_troubled = make_statement<TEXTOID, INT8OID, INT8OID, INT8OID>(
    PENDING_ROWS IS_TROUBLED
    " AND sink = $1 AND (pg_catalog.hashtextextended(partition_key, 0), position) > ($2, $3) "
    "ORDER BY pg_catalog.hashtextextended(partition_key, 0), position LIMIT $4");
static Statement read_troubled_of_key =
    make_statement<TEXTOID, INT8OID>(PENDING_ROWS IS_TROUBLED " AND " OF_KEY " ORDER BY position");
static Statement read_groups =
    make_statement<>("SELECT DISTINCT ON (blocked_by) " EVENT_ROW_COLUMNS
                     " FROM outbox.events_pending WHERE blocked_by IS NOT NULL ORDER BY blocked_by, position");
static Statement read_first_of_sink = make_statement<TEXTOID>(
    PENDING_ROWS "available_at IS NULL AND (sink COLLATE pg_catalog.\"C\", position) > ($1, 0) "
                 "AND (sink COLLATE pg_catalog.\"C\", position) < ($1, 9223372036854775807) "
                 "ORDER BY sink COLLATE pg_catalog.\"C\", position LIMIT 1");
static Statement read_first_unrouted = make_statement<>(PENDING_ROWS "sink IS NULL ORDER BY position LIMIT 1");
/* It reads all marked rows: there is no such index, because few of them have a time. */
static Statement read_first_marked_with_time = make_statement<>(
    PENDING_ROWS "blocked_by IS NOT NULL AND available_at IS NOT NULL ORDER BY position + 0 LIMIT 1");
static Statement read_last = make_statement<>(PENDING_ROWS "position > 0 ORDER BY position DESC LIMIT 1");
static Statement read_redriven_of_key = make_statement<TEXTOID, INT8OID>(
    PENDING_ROWS IS_TROUBLED
    " AND redrive_late IS NOT NULL AND blocked_by IS NULL AND available_at IS NULL AND " OF_KEY " ORDER BY position");
static Statement read_dead =
    make_statement<INT8OID, INT8OID>(FAILED_ROWS " WHERE position > $1 ORDER BY position LIMIT $2");
static Statement read_dead_of_key =
    make_statement<TEXTOID, INT8OID>(FAILED_ROWS " WHERE " OF_KEY " ORDER BY position");
static Statement read_dead_positions = make_statement<INT8ARRAYOID>(FAILED_ROWS " WHERE position = ANY ($1)");

static Datum name_of(const dispatch::RoundSink *sink) {
  return PointerGetDatum(cstring_to_text(static_cast<const WorkerSink *>(sink)->name));
}

/* Sets the values of its arguments. */
static Statement *statement_of(const dispatch::Read &read, int64 origin, Datum *values) {
  const auto set = [values](std::initializer_list<Datum> arguments) {
    memcpy(values, arguments.begin(), arguments.size() * sizeof(Datum));
  };
  const Datum after = Int64GetDatum(read.after), limit = Int64GetDatum(read.limit);

  switch (read.rows) {
  case RowsOf::MAIN:
    set({after, limit});
    return &read_main;
  case RowsOf::LATE:
    set({UInt64GetDatum(read.xid), after, Int64GetDatum(read.upto), limit, Int64GetDatum(origin)});
    return &read_late;
  case RowsOf::MARKED:
    set({Int64GetDatum(read.group), after, limit});
    return &read_marked;
  case RowsOf::DUE:
  case RowsOf::WAITING:
    set({name_of(read.sink), TimestampTzGetDatum(read.after_time), after, limit});
    return read.rows == RowsOf::DUE ? &read_due : &read_waiting;
  case RowsOf::POSITIONS:
  case RowsOf::DEAD_POSITIONS:
    set({int8_array(read.positions.data(), (int)read.positions.size())});
    return read.rows == RowsOf::POSITIONS ? &read_positions : &read_dead_positions;
  case RowsOf::REDRIVEN_OF_KEY:
  case RowsOf::DEAD_OF_KEY:
  case RowsOf::TROUBLED_OF_KEY:
    set({name_of(read.sink), Int64GetDatum((int64)read.key_hash)});
    return read.rows == RowsOf::DEAD_OF_KEY       ? &read_dead_of_key
           : read.rows == RowsOf::TROUBLED_OF_KEY ? &read_troubled_of_key
                                                  : &read_redriven_of_key;
  case RowsOf::TROUBLED:
    set({name_of(read.sink), Int64GetDatum(read.after_hash), after, limit});
    return &read_troubled;
  case RowsOf::GROUPS:
    return &read_groups;
  case RowsOf::FIRST_OF_SINK:
    set({name_of(read.sink)});
    return &read_first_of_sink;
  case RowsOf::FIRST_UNROUTED:
    return &read_first_unrouted;
  case RowsOf::FIRST_MARKED_WITH_TIME:
    return &read_first_marked_with_time;
  case RowsOf::LAST:
    return &read_last;
  case RowsOf::DEAD:
    set({after, limit});
    return &read_dead;
  }
  pg_unreachable();
}

typedef struct Visit {
  dispatch::RowVisitor visit;
  int64 origin;
  bool with_error;
} Visit;

/* Of a row of WAITING: its last column. */
static std::string_view error_of(TupleTableSlot *slot) {
  bool is_null;
  const Datum error = slot_getattr(slot, EVENT_ROW_N_COLUMNS + 1, &is_null);

  if (is_null)
    return {};
  const text *value = DatumGetTextPP(error);
  return {VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value)};
}

static bool visit_row(TupleTableSlot *slot, void *context) {
  const Visit *visit = (const Visit *)context;
  EventRow row;

  event_row_read(slot, &row);
  return visit->visit({
      .facts =
          {
              .position = row.position,
              .key_hash = row.key_hash,
              .available_at = row.available_at,
              .blocked_by = row.blocked_by,
              .failed = event_row_failed(&row),
              .redriven = row.redrive != NOT_REDRIVEN,
              .handle = {ItemPointerGetBlockNumberNoCheck(&row.ctid), ItemPointerGetOffsetNumberNoCheck(&row.ctid),
                         row.xmin, InvalidOid},
          },
      .sink = row.sink ? worker_sink_find(row.sink, row.sink_length) : NULL,
      .routed = row.sink != NULL,
      .our_origin = row.origin == visit->origin,
      .tried_at = row.failed_at,
      .error = visit->with_error ? error_of(slot) : std::string_view(),
      .of_port = &row,
  });
}

void ClaimTable::read(const dispatch::Read &read, dispatch::RowVisitor visit) {
  Visit context = {visit, origin_, read.rows == RowsOf::WAITING};
  Datum values[5];
  Statement *statement = statement_of(read, origin_, values);

  statement_read(statement, values, snapshot_, visit_row, &context);
}

/* ---- late commits, the rescan queue --------------------------------------------------------------------------- */

#define ROWS_OF_TRANSACTION(upto)                                                                                    \
  "outbox.events_pending AS e WHERE (e.origin, e.xact, e.position) >= ($1, x, 0) "                                   \
  "AND (e.origin, e.xact, e.position) <= ($1, x, " upto ")"

static Statement find_late_rows = make_statement<INT8OID, XID8ARRAYOID, INT8OID>(
    "SELECT x, has_rows.position FROM pg_catalog.unnest($2) AS x CROSS JOIN LATERAL "
    "(SELECT e.position FROM " ROWS_OF_TRANSACTION(
        "$3") " ORDER BY e.origin, e.xact, e.position LIMIT 1) AS has_rows");
/* All that a round could find in the tables, when nothing waits in the worker's memory. */
static Statement ask_for_news = make_statement<INT8OID, XID8ARRAYOID, INT8OID, XID8OID, INT8OID>(
    "SELECT EXISTS (SELECT FROM outbox_internal.rescan_queue WHERE (xact, position) > ($4, $5)) "
    "OR EXISTS (SELECT FROM outbox.events_pending WHERE position > $3) "
    "OR EXISTS (SELECT FROM pg_catalog.unnest($2) AS x CROSS JOIN LATERAL (SELECT FROM " ROWS_OF_TRANSACTION(
        "$3") " LIMIT 1) AS late)");
static Statement read_entries = make_statement<XID8OID, INT8OID, INT8OID>(
    "SELECT ctid, position, xact FROM outbox_internal.rescan_queue WHERE (xact, position) > ($1, $2) "
    "ORDER BY xact, position LIMIT $3");
static Statement delete_entries =
    make_statement<TIDARRAYOID>("DELETE FROM outbox_internal.rescan_queue WHERE ctid = ANY ($1)");

static Datum xid8_array(std::span<const uint64_t> xids) {
  Datum *values = palloc_array(Datum, Max(xids.size(), 1));

  for (size_t i = 0; i < xids.size(); i++)
    values[i] = UInt64GetDatum(xids[i]);
  return PointerGetDatum(construct_array(values, (int)xids.size(), XID8OID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

static bool visit_late(TupleTableSlot *slot, void *context) {
  const auto *visit = (const dispatch::FunctionRef<void, uint64_t, int64_t> *)context;

  (*visit)(DatumGetUInt64(slot->tts_values[0]), DatumGetInt64(slot->tts_values[1]));
  return true;
}

void ClaimTable::find_late(std::span<const uint64_t> transactions, int64_t upto,
                           dispatch::FunctionRef<void, uint64_t, int64_t> visit) {
  Datum values[] = {Int64GetDatum(origin_), xid8_array(transactions), Int64GetDatum(upto)};

  statement_read(&find_late_rows, values, snapshot_, visit_late, &visit);
}

static bool visit_answer(TupleTableSlot *slot, void *news) {
  *(bool *)news = DatumGetBool(slot->tts_values[0]);
  return true;
}

bool ClaimTable::any_news(dispatch::RescanPlace rescanned, int64_t cursor, std::span<const uint64_t> ended) {
  Datum values[] = {Int64GetDatum(origin_), xid8_array(ended), Int64GetDatum(cursor), UInt64GetDatum(rescanned.xact),
                    Int64GetDatum(rescanned.position)};
  bool news = true;

  statement_read(&ask_for_news, values, snapshot_, visit_answer, &news);
  return news;
}

typedef struct Entries {
  dispatch::QueueEntry *entries;
  int n;
} Entries;

static bool visit_entry(TupleTableSlot *slot, void *context) {
  Entries *list = (Entries *)context;

  list->entries[list->n++] = {{DatumGetUInt64(slot->tts_values[2]), DatumGetInt64(slot->tts_values[1])},
                              handle_of((ItemPointer)DatumGetPointer(slot->tts_values[0]))};
  return true;
}

int ClaimTable::read_queue(dispatch::RescanPlace after, std::span<dispatch::QueueEntry> entries) {
  Datum values[] = {UInt64GetDatum(after.xact), Int64GetDatum(after.position), Int64GetDatum((int64)entries.size())};
  Entries list = {entries.data(), 0};

  statement_read(&read_entries, values, snapshot_, visit_entry, &list);
  return list.n;
}

void ClaimTable::delete_from_queue(std::span<const dispatch::RowHandle> entries) {
  ItemPointerData *ctids = palloc_array(ItemPointerData, Max(entries.size(), 1));

  for (size_t i = 0; i < entries.size(); i++)
    ctids[i] = ctid_of(&entries[i]);
  Datum value = tid_array(ctids, (int)entries.size());
  statement_write(&delete_entries, &value, NULL, NULL);
}
