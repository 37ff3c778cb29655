/*
 * unrouted_events.cpp: when sinks change, outbox_internal.route_waiting() routes the events that had no sink. It
 * notes the positions of locked events, and only these are tried again. An event that was enqueued before a sink was
 * created and committed after it stops the sinks that take it until it is routed; otherwise later events of its key
 * would overtake it. For the same reason the rows of its further sinks get positions of its own step, and not new
 * ones.
 */
#include "server/enqueue/unrouted_events.h"

#include <algorithm>

extern "C" {
#include "access/detoast.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
}

#include "server/base/origin.h"
#include "server/base/own_change.h"
#include "server/base/position_step.h"
#include "server/base/sql_function.h"
#include "server/catalog/route.h"
#include "server/catalog/route_index.h"
#include "server/enqueue/event_insert.h"
#include "server/event/header_text.h"
#include "server/event/unreadable.h"
#include "server/shmem/wake.h"
#include "server/storage/owner_sql.h"
#include "server/storage/sql.h"

enum { BATCH = 1000 };

typedef struct Batch {
  int limit; /* at most so many events are routed at once */
  Datum positions[BATCH];
  Datum sinks[BATCH];
  int n;
  TransactionId xmin; /* of the last event */
  Datum *copies;      /* the positions of the rows that were inserted */
  int n_copies, max_copies;
} Batch;

enum { MAX_UNREPORTED = 64 };

/* A scan for events that a sink takes by now, and its result. */
typedef struct RoutingScan {
  Batch *batch; /* filled with the routed events */
  Statement *statement;
  Datum where;
  int found;
  Datum last; /* the last position that was found */
  UnreadableRow unreported[MAX_UNREPORTED];
  int n_unreported; /* unreadable rows whose last_error is not written yet */
} RoutingScan;

static int64 locked[BATCH]; /* sorted */
static int n_locked = 0;

/* `headers` is NULL if the event has none. */
static RouteSink **takers_of(Datum aggregate_type, Datum event_type, const Datum *headers, int *n) {
  RouteEvent event = {TextDatumGetCString(aggregate_type), TextDatumGetCString(event_type), NULL, 0};

  if (headers && route_by_headers())
    event.headers = header_list(DatumGetJsonbP(*headers), &event.n_headers);
  return route_takers(&event, n);
}

/* Writes the error into the row's last_error. The next scan writes it if the row is locked now. */
static void report_unreadable(void *unreadable) {
  const UnreadableRow *row = (const UnreadableRow *)unreadable;
  static Statement report = make_statement<INT8OID, TEXTOID>(
      "UPDATE outbox.events_pending SET last_error = $2 WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY("
      "SELECT ctid FROM outbox.events_pending WHERE position OPERATOR(pg_catalog.=) $1 "
      "AND sink IS NULL AND last_error IS NULL FOR UPDATE SKIP LOCKED))");
  Datum values[] = {Int64GetDatum(row->position), CStringGetTextDatum(row->error)};

  owner_execute(&report, values, NULL);
}

static bool is_unreadable(RoutingScan *scan, HeapTuple tuple, TupleDesc desc) {
  bool isnull;
  const UnreadableRow *row = unreadable_find(DatumGetInt64(SPI_getbinval(tuple, desc, 1, &isnull)),
                                             DatumGetTransactionId(SPI_getbinval(tuple, desc, 5, &isnull)));

  if (row && scan->n_unreported < MAX_UNREPORTED && !DatumGetBool(SPI_getbinval(tuple, desc, 6, &isnull)))
    scan->unreported[scan->n_unreported++] = *row;
  return row != NULL;
}

/* Does a sink take the event of this row of a scan? Resets `scratch` for the next row. */
static bool some_sink_takes(HeapTuple tuple, TupleDesc desc, MemoryContext scratch) {
  bool isnull, never;
  int n;
  MemoryContext caller = MemoryContextSwitchTo(scratch);
  Datum aggregate_type = SPI_getbinval(tuple, desc, 2, &isnull);
  Datum event_type = SPI_getbinval(tuple, desc, 3, &isnull);
  Datum headers = SPI_getbinval(tuple, desc, 4, &isnull);

  unreadable_begin(DatumGetInt64(SPI_getbinval(tuple, desc, 1, &never)),
                   DatumGetTransactionId(SPI_getbinval(tuple, desc, 5, &never)), PART_ROUTING);
  (void)takers_of(aggregate_type, event_type, isnull ? NULL : &headers, &n);
  unreadable_done();
  MemoryContextSwitchTo(caller);
  MemoryContextReset(scratch);
  return n > 0;
}

/* Reads unrouted events after a position, without locking them. Only rows of this origin: those of another one are
 * not sent from here. */
static Statement find_all = make_statement<INT8OID, INT8OID>(
    "SELECT position, aggregate_type, event_type, headers, xmin, last_error IS NOT NULL FROM outbox.events_pending "
    "WHERE sink IS NULL AND origin OPERATOR(pg_catalog.=) $1 "
    "AND position OPERATOR(pg_catalog.>) $2 ORDER BY position");
/* Reads the noted events that are still unrouted. */
static Statement find_noted = make_statement<INT8OID, INT8ARRAYOID>(
    "SELECT position, aggregate_type, event_type, headers, xmin, last_error IS NOT NULL FROM outbox.events_pending "
    "WHERE sink IS NULL AND origin OPERATOR(pg_catalog.=) $1 "
    "AND position OPERATOR(pg_catalog.=) ANY ($2) ORDER BY position");

static void find_routable(RoutingScan *scan) {
  Batch *batch = scan->batch;
  Datum values[] = {Int64GetDatum(origin_here()), scan->where};
  Portal cursor = SPI_cursor_open(NULL, owner_plan(scan->statement), values, NULL, false);
  MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext, "outbox waiting event",
                                                ALLOCSET_SMALL_SIZES); /* reset for each row: there may be millions */

  for (;;) {
    SPI_cursor_fetch(cursor, true, BATCH);
    SPITupleTable *rows = SPI_tuptable;
    for (uint64 i = 0; i < SPI_processed && batch->n < batch->limit; i++) {
      bool isnull;
      if (!is_unreadable(scan, rows->vals[i], rows->tupdesc) &&
          some_sink_takes(rows->vals[i], rows->tupdesc, scratch))
        batch->positions[batch->n++] = SPI_getbinval(rows->vals[i], rows->tupdesc, 1, &isnull);
    }
    bool more = SPI_processed == BATCH && batch->n < batch->limit;
    SPI_freetuptable(rows);
    if (!more)
      break;
  }
  SPI_cursor_close(cursor);
  MemoryContextDelete(scratch);
}

/* Fetches the TOAST values that the copies need; each copy gets TOAST values of its own. They are fetched here, where
 * an error is attributed to the row. */
static void fetch_toasted(Datum *values, const bool *isnull) {
  static const EventColumn large[] = {EV_AGGREGATE_TYPE, EV_AGGREGATE_ID,  EV_EVENT_TYPE,
                                      EV_PAYLOAD,        EV_PAYLOAD_BYTES, EV_CONTENT_TYPE,
                                      EV_HEADERS,        EV_PARTITION_KEY, EV_DEDUP_KEY};

  for (EventColumn column : large)
    if (!isnull[column])
      values[column] = PointerGetDatum(detoast_external_attr((struct varlena *)DatumGetPointer(values[column])));
}

/* Removes the sinks for which another event with this id is pending, since a sink has one row per id. */
static int without_pending(Datum id, char **names, int n) {
  static Statement find =
      make_statement<UUIDOID, TEXTOID>("SELECT FROM outbox.events_pending WHERE id OPERATOR(pg_catalog.=) $1 "
                                       "AND sink OPERATOR(pg_catalog.=) $2");
  int kept = 0;

  for (int i = 0; i < n; i++) {
    Datum values[] = {id, CStringGetTextDatum(names[i])};
    if (owner_execute(&find, values, NULL) == 0)
      names[kept++] = names[i];
  }
  return kept;
}

/* The unique index would refuse the row for every sink that takes it, and with it the whole batch. */
static void refuse_row(int64 position, const char *sink) {
  static Statement refuse = make_statement<INT8OID, TEXTOID>(
      "SELECT outbox_internal.move_to_failed($1, 0, 'not routed: another event with its id is "
      "pending for the sink', pg_catalog.clock_timestamp(), NULL)");
  static Statement name_sink = make_statement<INT8OID, TEXTOID>(
      "UPDATE outbox.events_failed SET sink = $2 WHERE position OPERATOR(pg_catalog.=) $1");
  Datum values[] = {Int64GetDatum(position), CStringGetTextDatum(sink)};

  owner_execute(&refuse, values, NULL);
  owner_execute(&name_sink, values, NULL);
  queue_rescan(position); /* it may block its key */
}

/* The last position in use of the step of this row. Only a row that was changed since it was enqueued may have been
 * routed before, and have rows of other sinks there, whatever their status. */
static int64 last_used(int64 position, uint64 xact, TransactionId xmin) {
  static Statement find = make_statement<INT8OID, INT8OID>(
      "SELECT pg_catalog.max(position) FROM outbox.events WHERE position OPERATOR(pg_catalog.>=) "
      "$1 AND position OPERATOR(pg_catalog.<=) $2");
  Datum values[] = {Int64GetDatum(position), Int64GetDatum(position_last_of(position))};
  bool isnull;

  if ((TransactionId)xact == xmin && !TransactionIdIsCurrentTransactionId(xmin))
    return position;
  owner_execute(&find, values, NULL);
  return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
}

static void note_copy(Batch *batch, Datum position) {
  if (batch->n_copies == batch->max_copies) {
    batch->max_copies = Max(BATCH, batch->max_copies * 2);
    batch->copies = batch->copies ? (Datum *)repalloc_huge(batch->copies, sizeof(Datum) * batch->max_copies)
                                  : palloc_array(Datum, batch->max_copies);
  }
  batch->copies[batch->n_copies++] = position;
}

/* Inserts one more row for each of these sinks, as if the event had been routed when it was enqueued: in its place,
 * and of its transaction. (A row with more sinks than its step has positions gets new ones for the others.) */
static void insert_copies(Batch *batch, Datum *values, bool *isnull, TransactionId xmin, char **sinks, int n) {
  const int64 position = DatumGetInt64(values[EV_POSITION]);
  const int64 used = n > 0 ? last_used(position, DatumGetUInt64(values[EV_XACT]), xmin) : 0;

  isnull[EV_SINK] = false;
  isnull[EV_BLOCKED_BY] = true;
  for (int i = 0; i < n; i++) {
    values[EV_SINK] = CStringGetTextDatum(sinks[i]);
    values[EV_POSITION] = Int64GetDatum(used + 1 + i);
    isnull[EV_POSITION] = used + 1 + i > position_last_of(position);
    if (event_insert_routed_if_missing(values, isnull) && !isnull[EV_POSITION])
      note_copy(batch, values[EV_POSITION]);
  }
}

/* Inserts a copy of the row for each sink that takes it but the first, whose name it returns for the row itself. NULL
 * when no sink takes the event anymore, or all of them have an event with its id. */
static char *route_row(Batch *batch, HeapTuple tuple, TupleDesc desc, MemoryContext scratch) {
  Datum values[EV_ROUTED];
  bool isnull[EV_ROUTED], never;
  int n;

  for (int column = 0; column < EV_ROUTED; column++)
    values[column] = SPI_getbinval(tuple, desc, column + 1, &isnull[column]);
  const int64 position = DatumGetInt64(values[EV_POSITION]);
  const TransactionId xmin = DatumGetTransactionId(SPI_getbinval(tuple, desc, EV_ROUTED + 1, &never));
  unreadable_begin(position, xmin, PART_ROUTING);
  RouteSink **takers = takers_of(values[EV_AGGREGATE_TYPE], values[EV_EVENT_TYPE],
                                 isnull[EV_HEADERS] ? NULL : &values[EV_HEADERS], &n);
  /* The names are copied, because the next statement may rebuild the cache of sinks. */
  char **names = palloc_array(char *, n + 1);
  for (int i = 0; i < n; i++)
    names[i] = pstrdup(takers[i]->name);
  const int n_takers = n;

  if (n > 1) {
    MemoryContext caller = MemoryContextSwitchTo(scratch);
    fetch_toasted(values, isnull);
    MemoryContextSwitchTo(caller);
  }
  unreadable_begin(position, xmin, PART_ROUTED);
  n = without_pending(values[EV_ID], names, n);
  if (n == 0 && n_takers > 0)
    refuse_row(position, names[0]);
  insert_copies(batch, values, isnull, xmin, names + 1, n - 1);
  unreadable_done();
  batch->xmin = xmin;
  MemoryContextReset(scratch);
  return n > 0 ? names[0] : NULL;
}

static void note_locked(int64 position) {
  if (n_locked < BATCH)
    locked[n_locked++] = position;
}

static Datum positions_array(Datum *positions, int n) {
  return PointerGetDatum(construct_array(positions, n, INT8OID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* Locks and routes the events of the batch, and leaves the routed ones in it. (Both lists are sorted, so entries of
 * the batch that were already compared can be overwritten.) */
static void lock_and_route(Batch *batch) {
  static Statement lock = make_statement<INT8ARRAYOID>(NULL);

  if (lock.sql == NULL) {
    StringInfoData text;
    initStringInfo(&text);
    appendStringInfoString(&text, "SELECT ");
    for (int column = 0; column < EV_ROUTED; column++)
      appendStringInfo(&text, "%s, ", event_column_names[column]);
    appendStringInfoString(&text, "xmin FROM outbox.events_pending WHERE position OPERATOR(pg_catalog.=) ANY ($1) "
                                  "AND sink IS NULL ORDER BY position FOR UPDATE SKIP LOCKED");
    lock.sql = MemoryContextStrdup(TopMemoryContext, text.data);
  }
  Datum values[] = {positions_array(batch->positions, batch->n)};
  uint64 n = owner_execute(&lock, values, NULL);
  SPITupleTable *rows = SPI_tuptable;
  int found = batch->n, next = 0;
  MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext, "outbox event to copy",
                                                ALLOCSET_SMALL_SIZES); /* for large payloads */

  batch->n = batch->n_copies = 0;
  for (uint64 i = 0; i < n; i++) {
    bool isnull;
    Datum position = SPI_getbinval(rows->vals[i], rows->tupdesc, EV_POSITION + 1, &isnull);
    for (; next < found && DatumGetInt64(batch->positions[next]) < DatumGetInt64(position); next++)
      note_locked(DatumGetInt64(batch->positions[next]));
    next++;
    char *sink = route_row(batch, rows->vals[i], rows->tupdesc, scratch);
    if (sink == NULL)
      continue;
    batch->positions[batch->n] = position;
    batch->sinks[batch->n++] = CStringGetTextDatum(sink);
  }
  for (; next < found; next++)
    note_locked(DatumGetInt64(batch->positions[next]));
  MemoryContextDelete(scratch);
}

/* The positions may be behind the worker's cursors, so they go to the rescan queue. */
static void write_sinks(Batch *batch) {
  static Statement update = make_statement<INT8ARRAYOID, TEXTARRAYOID, INT8ARRAYOID>(
      "WITH routed AS (UPDATE outbox.events_pending AS event SET sink = chosen.sink "
      "FROM unnest($1, $2) AS chosen (position, sink) "
      "WHERE event.position OPERATOR(pg_catalog.=) chosen.position RETURNING event.position) "
      "INSERT INTO outbox_internal.rescan_queue (position) SELECT position FROM routed UNION "
      "ALL SELECT unnest($3)");
  Datum values[] = {positions_array(batch->positions, batch->n), text_array(batch->sinks, batch->n),
                    positions_array(batch->copies, batch->n_copies)};

  if (batch->n == 1) /* otherwise an error may be that of any row */
    unreadable_begin(DatumGetInt64(batch->positions[0]), batch->xmin, PART_ROUTED);
  owner_execute(&update, values, NULL);
  unreadable_done();
  request_rescan_at_commit();
}

/* Routes the events of the batch, and leaves the routed ones in it. */
static void route_batch(Batch *batch) {
  if (batch->n == 0)
    return;
  const int before = own_changes_begin(); /* this UPDATE is not a user's, whichever session calls */
  PG_TRY();
  {
    lock_and_route(batch);
    if (batch->n > 0)
      write_sinks(batch);
  }
  PG_FINALLY();
  { own_changes_end(before); }
  PG_END_TRY();
}

static RoutingScan *new_scan(Batch *batch, Statement *statement, Datum where) {
  RoutingScan *scan = palloc0_object(RoutingScan);

  batch->limit = BATCH;
  scan->batch = batch;
  scan->statement = statement;
  scan->where = where;
  return scan;
}

static void route_found(void *argument) {
  RoutingScan *scan = (RoutingScan *)argument;
  Batch *batch = scan->batch;

  batch->n = scan->n_unreported = 0;
  find_routable(scan);
  scan->found = batch->n;
  if (scan->found > 0)
    scan->last = batch->positions[scan->found - 1];
  route_batch(batch);
}

/* Repeats the scan without each row that turned out to be unreadable, or whose trigger or constraint refuses it. That
 * row is found by halving the batch. */
static void route_readable(RoutingScan *scan) {
  const int n_before = n_locked;
  UnreadableRow failed;

  for (UnreadableTry end; (end = unreadable_try(route_found, scan, &failed)) != TRY_SUCCEEDED;) {
    if (end == TRY_FAILED_AT_ROW)
      unreadable_remember(&failed);
    else if (scan->batch->limit > 1)
      scan->batch->limit = Min(scan->batch->limit, scan->batch->n) / 2;
    else
      ereport(ERROR, (errmsg_internal("%s", failed.error)));
    scan->batch->limit = Max(scan->batch->limit, 1);
    n_locked = n_before;
    CHECK_FOR_INTERRUPTS();
  }
  for (int i = 0; i < scan->n_unreported; i++)
    (void)unreadable_try(report_unreadable, &scan->unreported[i], &failed);
}

/* Routes at most BATCH unrouted events and returns their number. Call it until it returns 0, each time in a
 * transaction of its own. When all events of a page are locked, it goes on with the next page. */
SQL_FUNCTION(outbox_route_waiting) {
  Batch *batch = palloc0_object(Batch);
  RoutingScan *scan = new_scan(batch, &find_all, Int64GetDatum(PG_INT64_MIN));

  OwnerScope scope = owner_enter();
  n_locked = 0;
  do {
    route_readable(scan);
    scan->where = scan->last;
  } while (batch->n == 0 && scan->found == batch->limit);
  owner_leave(scope);
  PG_RETURN_INT64(batch->n);
}

bool unrouted_route_locked(void) {
  Assert(in_spi());
  Batch *batch = palloc0_object(Batch);
  Datum *positions = palloc_array(Datum, n_locked + 1);
  bool full = n_locked == BATCH;

  OwnerScope scope = owner_enter();
  for (int i = 0; i < n_locked; i++)
    positions[i] = Int64GetDatum(locked[i]);
  RoutingScan *scan = new_scan(batch, &find_noted, positions_array(positions, n_locked));
  n_locked = 0;
  route_readable(scan);
  owner_leave(scope);
  return (full && n_locked == 0) || batch->limit < BATCH;
}

bool unrouted_lock_routing(void) {
  Assert(IsTransactionState());
  LOCKTAG tag;

  SET_LOCKTAG_OBJECT(tag, MyDatabaseId, RelationRelationId, outbox_pending_oid(), 0);
  return LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

int unrouted_locked(void) {
  return n_locked;
}

bool unrouted_is_locked(int64 position) {
  return std::binary_search(locked, locked + n_locked, position);
}

SQL_FUNCTION(outbox_has_taker) {
  int n;

  if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
    PG_RETURN_BOOL(false);
  Datum headers = PG_ARGISNULL(2) ? (Datum)0 : PG_GETARG_DATUM(2);

  (void)takers_of(PG_GETARG_DATUM(0), PG_GETARG_DATUM(1), PG_ARGISNULL(2) ? NULL : &headers, &n);
  PG_RETURN_BOOL(n > 0);
}
