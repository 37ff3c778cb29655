/*
 * unrouted_events.cpp: events that no sink took wait, unrouted; when sinks change, outbox.route_waiting() looks
 * again.
 * The positions of events that are locked when they are to be routed are noted, and only these are tried again. An
 * event enqueued before a sink was made and committed after it stops the sinks that take it until it is routed;
 * otherwise later events of its key would pass it.
 */
#include "server/enqueue/unrouted_events.h"

#include <algorithm>

extern "C" {
#include "access/detoast.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
}

#include "server/base/is_worker.h"
#include "server/base/origin.h"
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
  Datum positions[BATCH];
  Datum sinks[BATCH];
  int n;
} Batch;

enum { UNTOLD = 64 };

/* A scan for events that some sink takes now, and what came of it. */
typedef struct Look {
  Batch *batch; /* comes back with what was routed */
  OwnerSql *scan;
  Datum where;
  int found;
  Datum last; /* of those that were found */
  UnreadableRow untold[UNTOLD];
  int n_untold; /* they do not yet say why they wait */
} Look;

static int64 locked[BATCH]; /* in order */
static int n_locked = 0;

/* NULL: no headers. */
static RouteSink **takers_of(Datum aggregate_type, Datum event_type, const Datum *headers, int *n) {
  RouteEvent event = {TextDatumGetCString(aggregate_type), TextDatumGetCString(event_type), NULL, 0};

  if (headers && route_by_headers())
    event.headers = header_list(DatumGetJsonbP(*headers), &event.n_headers);
  return route_takers(&event, n);
}

static const Oid find_all_types[] = {INT8OID, INT8OID}, find_noted_types[] = {INT8OID, INT8ARRAYOID};

/* The row says why it waits. If somebody has it locked, the next look writes it. */
static void tell_unreadable(const UnreadableRow *row) {
  static const Oid types[] = {INT8OID, TEXTOID};
  static OwnerSql tell = {
      "UPDATE outbox.events_pending SET last_error = $2 WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY("
      "SELECT ctid FROM outbox.events_pending WHERE position OPERATOR(pg_catalog.=) $1 "
      "AND sink IS NULL AND last_error IS NULL FOR UPDATE SKIP LOCKED))",
      2, types, NULL};
  Datum values[] = {Int64GetDatum(row->position), CStringGetTextDatum(row->error)};

  owner_execute(&tell, values, NULL);
}

static bool is_unreadable(Look *look, HeapTuple tuple, TupleDesc desc) {
  bool isnull;
  const UnreadableRow *row = unreadable_find(DatumGetInt64(SPI_getbinval(tuple, desc, 1, &isnull)),
                                             DatumGetTransactionId(SPI_getbinval(tuple, desc, 5, &isnull)));

  if (row && look->n_untold < UNTOLD && !DatumGetBool(SPI_getbinval(tuple, desc, 6, &isnull)))
    look->untold[look->n_untold++] = *row;
  return row != NULL;
}

/* Of such a scan's row, in memory that is used again for the next one. */
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

/* The first events after a position that some sink takes now. Reads only: what still has to wait is not locked. Rows
 * of another origin are not ours to send. */
static OwnerSql find_all = {
    "SELECT position, aggregate_type, event_type, headers, xmin, last_error IS NOT NULL FROM outbox.events_pending "
    "WHERE sink IS NULL AND origin OPERATOR(pg_catalog.=) $1 "
    "AND position OPERATOR(pg_catalog.>) $2 ORDER BY position",
    2, find_all_types, NULL};
/* Or of those that were locked. */
static OwnerSql find_noted = {
    "SELECT position, aggregate_type, event_type, headers, xmin, last_error IS NOT NULL FROM outbox.events_pending "
    "WHERE sink IS NULL AND origin OPERATOR(pg_catalog.=) $1 "
    "AND position OPERATOR(pg_catalog.=) ANY ($2) ORDER BY position",
    2, find_noted_types, NULL};

static void find_routable(Look *look) {
  Batch *batch = look->batch;
  Datum values[] = {Int64GetDatum(origin_here()), look->where};
  Portal cursor = SPI_cursor_open(NULL, owner_plan(look->scan), values, NULL, false);
  MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext, "outbox waiting event",
                                                ALLOCSET_SMALL_SIZES); /* millions may wait */

  for (;;) {
    SPI_cursor_fetch(cursor, true, BATCH);
    SPITupleTable *rows = SPI_tuptable;
    for (uint64 i = 0; i < SPI_processed && batch->n < BATCH; i++) {
      bool isnull;
      if (!is_unreadable(look, rows->vals[i], rows->tupdesc) &&
          some_sink_takes(rows->vals[i], rows->tupdesc, scratch))
        batch->positions[batch->n++] = SPI_getbinval(rows->vals[i], rows->tupdesc, 1, &isnull);
    }
    bool more = SPI_processed == BATCH && batch->n < BATCH;
    SPI_freetuptable(rows);
    if (!more)
      break;
  }
  SPI_cursor_close(cursor);
  MemoryContextDelete(scratch);
}

/* What copies need, as it cannot be read later. Their own TOAST values are made of it. */
static void fetch(Datum *values, const bool *isnull) {
  static const EventColumn large[] = {EV_AGGREGATE_TYPE, EV_AGGREGATE_ID,  EV_EVENT_TYPE,
                                      EV_PAYLOAD,        EV_PAYLOAD_BYTES, EV_CONTENT_TYPE,
                                      EV_HEADERS,        EV_PARTITION_KEY, EV_DEDUP_KEY};

  for (EventColumn column : large)
    if (!isnull[column])
      values[column] = PointerGetDatum(detoast_external_attr((struct varlena *)DatumGetPointer(values[column])));
}

/* The row itself goes to the first sink that takes it, a copy to every further one. NULL: none takes it any more. */
static char *route_row(HeapTuple tuple, TupleDesc desc, MemoryContext scratch) {
  Datum values[EV_GIVEN];
  bool isnull[EV_GIVEN], never;
  int n;

  for (int column = 0; column < EV_GIVEN; column++)
    values[column] = SPI_getbinval(tuple, desc, column + 1, &isnull[column]);
  unreadable_begin(DatumGetInt64(SPI_getbinval(tuple, desc, EV_GIVEN + 1, &never)),
                   DatumGetTransactionId(SPI_getbinval(tuple, desc, EV_GIVEN + 2, &never)), PART_ROUTING);
  RouteSink **takers = takers_of(values[EV_AGGREGATE_TYPE], values[EV_EVENT_TYPE],
                                 isnull[EV_HEADERS] ? NULL : &values[EV_HEADERS], &n);
  char **names = (char **)palloc(sizeof(char *) * (n + 1)); /* the sinks are gone after the next statement */
  for (int i = 0; i < n; i++)
    names[i] = pstrdup(takers[i]->name);

  if (n > 1) {
    MemoryContext caller = MemoryContextSwitchTo(scratch);
    fetch(values, isnull);
    MemoryContextSwitchTo(caller);
  }
  unreadable_done();
  isnull[EV_SINK] = false;
  for (int i = 1; i < n; i++) {
    values[EV_SINK] = CStringGetTextDatum(names[i]);
    event_insert_copy_if_missing(values, isnull);
  }
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

/* Leaves in the batch those that were routed. (Both lists are in order, and a place in the first is free once it was
 * looked at.) */
static void lock_and_route(Batch *batch) {
  static const Oid types[] = {INT8ARRAYOID};
  static OwnerSql lock = {NULL, 1, types, NULL};

  if (lock.text == NULL) {
    StringInfoData text;
    initStringInfo(&text);
    appendStringInfoString(&text, "SELECT ");
    for (int column = 0; column < EV_GIVEN; column++)
      appendStringInfo(&text, "%s, ", event_column_names[column]);
    appendStringInfoString(&text,
                           "position, xmin FROM outbox.events_pending WHERE position OPERATOR(pg_catalog.=) ANY ($1) "
                           "AND sink IS NULL ORDER BY position FOR UPDATE SKIP LOCKED");
    lock.text = MemoryContextStrdup(TopMemoryContext, text.data);
  }
  Datum values[] = {positions_array(batch->positions, batch->n)};
  uint64 n = owner_execute(&lock, values, NULL);
  SPITupleTable *rows = SPI_tuptable;
  int found = batch->n, next = 0;
  MemoryContext scratch =
      AllocSetContextCreate(CurrentMemoryContext, "outbox event to copy", ALLOCSET_SMALL_SIZES); /* a large one */

  batch->n = 0;
  for (uint64 i = 0; i < n; i++) {
    bool isnull;
    Datum position = SPI_getbinval(rows->vals[i], rows->tupdesc, EV_GIVEN + 1, &isnull);
    for (; next < found && DatumGetInt64(batch->positions[next]) < DatumGetInt64(position); next++)
      note_locked(DatumGetInt64(batch->positions[next]));
    next++;
    char *sink = route_row(rows->vals[i], rows->tupdesc, scratch);
    if (sink == NULL)
      continue;
    batch->positions[batch->n] = position;
    batch->sinks[batch->n++] = CStringGetTextDatum(sink);
  }
  for (; next < found; next++)
    note_locked(DatumGetInt64(batch->positions[next]));
  MemoryContextDelete(scratch);
}

/* Their positions may lie behind the worker's cursors. */
static void write_sinks(Batch *batch) {
  static const Oid types[] = {INT8ARRAYOID, TEXTARRAYOID};
  static OwnerSql update = {"WITH routed AS (UPDATE outbox.events_pending AS event SET sink = chosen.sink "
                            "FROM unnest($1, $2) AS chosen (position, sink) "
                            "WHERE event.position OPERATOR(pg_catalog.=) chosen.position RETURNING event.position) "
                            "INSERT INTO outbox_internal.rescan_queue (position) SELECT position FROM routed",
                            2, types, NULL};
  Datum values[] = {positions_array(batch->positions, batch->n),
                    PointerGetDatum(construct_array(batch->sinks, batch->n, TEXTOID, -1, false, TYPALIGN_INT))};

  owner_execute(&update, values, NULL);
  request_rescan_at_commit();
}

/* Routes what is in the batch and leaves there what was. */
static void route_batch(Batch *batch) {
  bool is_worker = server_is_worker;

  if (batch->n == 0)
    return;
  server_is_worker = true; /* whoever calls: this UPDATE is the server's */
  PG_TRY();
  {
    lock_and_route(batch);
    if (batch->n > 0)
      write_sinks(batch);
  }
  PG_FINALLY();
  { server_is_worker = is_worker; }
  PG_END_TRY();
}

static Look *look_for(Batch *batch, OwnerSql *scan, Datum where) {
  Look *look = (Look *)palloc0(sizeof(Look));

  look->batch = batch;
  look->scan = scan;
  look->where = where;
  return look;
}

static void route_found(void *argument) {
  Look *look = (Look *)argument;
  Batch *batch = look->batch;

  batch->n = look->n_untold = 0;
  find_routable(look);
  look->found = batch->n;
  if (look->found > 0)
    look->last = batch->positions[look->found - 1];
  route_batch(batch);
}

/* Again and again without those that cannot be read. */
static void route_readable(Look *look) {
  const int n_before = n_locked;
  UnreadableRow failed;

  while (!unreadable_try(route_found, look, &failed)) {
    unreadable_remember(&failed);
    n_locked = n_before;
    CHECK_FOR_INTERRUPTS();
  }
  for (int i = 0; i < look->n_untold; i++)
    tell_unreadable(&look->untold[i]);
}

/* Routes at most BATCH waiting events and says how many: call it, each time in a transaction of its own, until it
 * returns 0. A page of which all are locked does not stand in the way of those behind it. */
SQL_FUNCTION(outbox_route_waiting) {
  Batch *batch = (Batch *)palloc0(sizeof(Batch));
  Look *look = look_for(batch, &find_all, Int64GetDatum(PG_INT64_MIN));

  OwnerScope scope = owner_enter();
  n_locked = 0;
  do {
    route_readable(look);
    look->where = look->last;
  } while (batch->n == 0 && look->found == BATCH);
  owner_leave(scope);
  PG_RETURN_INT64(batch->n);
}

bool unrouted_route_locked(void) {
  Assert(in_spi());
  Batch *batch = (Batch *)palloc0(sizeof(Batch));
  Datum *positions = (Datum *)palloc(sizeof(Datum) * (n_locked + 1));
  bool full = n_locked == BATCH;

  OwnerScope scope = owner_enter();
  for (int i = 0; i < n_locked; i++)
    positions[i] = Int64GetDatum(locked[i]);
  Look *look = look_for(batch, &find_noted, positions_array(positions, n_locked));
  n_locked = 0;
  route_readable(look);
  owner_leave(scope);
  return full && n_locked == 0;
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
