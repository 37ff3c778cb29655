/*
 * enqueue.cpp: an event comes in. Every way in (outbox.enqueue, INSERT, COPY, an ORM, a restore) ends in the BEFORE
 * INSERT trigger; outbox.enqueue() only spares its caller the rights on the table.
 * The trigger function sets no search_path, as the only function of the extension: it runs per row, and every name
 * in its statements is qualified.
 */
#include "server/base/is_worker.h"
#include "server/base/origin.h"
#include "server/base/sql_function.h"
#include "server/base/uuid7.h"
#include "server/catalog/route.h"
#include "server/catalog/route_index.h"
#include "server/enqueue/update_trigger.h"
#include "server/enqueue/dedup.h"
#include "server/enqueue/event_check.h"
#include "server/enqueue/event_insert.h"
#include "server/enqueue/position.h"
#include "server/shmem/wake.h"
#include "server/storage/owner_sql.h"

#include <time.h>

extern "C" {
#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"
#include "utils/xid8.h"
}

/* The last id that we made, until a row is written with it: nobody else can have that. */
static pg_uuid_t newest_id;
static bool newest_is_unused = false;

static bool is_new_id(const TriggerRow *row) {
  bool is_new = newest_is_unused && memcmp(DatumGetUUIDP(row_get(row, EV_ID)), &newest_id, sizeof newest_id) == 0;

  newest_is_unused = false;
  return is_new;
}

static Datum new_uuid(void) {
  static Uuid7Clock clock;
  static uint8_t random[64 * 8]; /* drawn 64 at a time: one call each would cost as much as all the rest */
  static size_t used = sizeof random;
  pg_uuid_t *uuid = (pg_uuid_t *)palloc(sizeof *uuid);
  struct timespec now;

  if (used == sizeof random) {
    if (!pg_strong_random(random, sizeof random))
      ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random bits for a UUID")));
    used = 0;
  }
  clock_gettime(CLOCK_REALTIME, &now);
  uuid7_make(uuid->data, &clock, (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec, random + used);
  used += 8;
  newest_id = *uuid;
  newest_is_unused = true;
  return UUIDPGetDatum(uuid);
}

/* What languages without NULL send for an id that was never set (Go's uuid.UUID{}, .NET's Guid.Empty). */
static bool is_nil(Datum id) {
  static const pg_uuid_t nil = {};

  return memcmp(DatumGetUUIDP(id), &nil, sizeof nil) == 0;
}

/* ORMs send explicit NULLs, which no DEFAULT catches. */
static void fill_defaults(TriggerRow *row) {
  if (row_isnull(row, EV_ID) || (row_isnull(row, EV_POSITION) && is_nil(row_get(row, EV_ID))))
    row_set(row, EV_ID, new_uuid());
  row_default(row, EV_CREATED_AT, TimestampTzGetDatum(GetCurrentTransactionStartTimestamp()));
  row_default(row, EV_ATTEMPTS, Int32GetDatum(0));
  if (row_isnull(row, EV_STATUS))
    row_set(row, EV_STATUS, CStringGetTextDatum("PENDING"));
}

/* The position comes after the transaction id (see position_draw), and with it the origin. */
static void draw_position(TriggerRow *row) {
  row_set(row, EV_POSITION, Int64GetDatum(position_draw()));
  row_set(row, EV_ORIGIN, Int64GetDatum(origin_here()));
}

static void stamp_transaction(TriggerRow *row) {
  row_set(row, EV_XACT, FullTransactionIdGetDatum(GetTopFullTransactionId()));
}

/* The sinks that the event goes to: the one it names, or all that take it. */
static RouteSink **choose_sinks(const TriggerRow *row, const EventHeaders *headers, EventWriter writer, int *n) {
  if (row_isnull(row, EV_SINK)) {
    RouteEvent event = {TextDatumGetCString(row_get(row, EV_AGGREGATE_TYPE)),
                        TextDatumGetCString(row_get(row, EV_EVENT_TYPE)), headers->list, headers->n};
    return route_takers(&event, n);
  }
  char *name = TextDatumGetCString(row_get(row, EV_SINK));
  RouteSink *sink = writer == WRITER_ENQUEUE ? route_find(name) : NULL;
  RouteSink **chosen = (RouteSink **)palloc(sizeof(RouteSink *));
  *chosen = sink ? sink : route_require(name, GetUserId());
  *n = 1;
  return chosen;
}

/* One more row for each further sink, so that each has its own progress, retries and dead letters. */
static void insert_copies(const TriggerRow *row, bool is_new, const Datum *sinks, int n) {
  Datum values[EV_GIVEN];
  bool isnull[EV_GIVEN];

  for (int column = 0; column < EV_GIVEN; column++) {
    isnull[column] = row_isnull(row, (EventColumn)column);
    values[column] = row_get(row, (EventColumn)column);
  }
  if (is_new) {
    event_insert_copies(values, isnull, sinks, n);
    return;
  }
  OwnerScope scope = owner_enter();
  isnull[EV_SINK] = false;
  for (int i = 0; i < n; i++) {
    values[EV_SINK] = sinks[i];
    event_insert_copy_if_missing(values, isnull);
  }
  owner_leave(scope);
}

static void claim_dedup_key(const TriggerRow *row) {
  pg_uuid_t first;

  OwnerScope scope = owner_enter();
  if (!dedup_claim(row_get(row, EV_DEDUP_KEY), row_get(row, EV_ID), &first))
    dedup_report_duplicate(row_get(row, EV_DEDUP_KEY));
  owner_leave(scope);
}

/* What the server fills while it delivers. A restore by the owner may bring it along. */
static void reset_delivery(TriggerRow *row) {
  bool given = DatumGetInt32(row_get(row, EV_ATTEMPTS)) != 0 || !row_isnull(row, EV_LAST_ERROR) ||
               !row_isnull(row, EV_SENT_AT) || !row_isnull(row, EV_LAST_ATTEMPT_AT);

  if (!given || is_owner(GetUserId()))
    return;
  row_set(row, EV_ATTEMPTS, Int32GetDatum(0));
  row_set_null(row, EV_LAST_ERROR);
  row_set_null(row, EV_SENT_AT);
  row_set_null(row, EV_LAST_ATTEMPT_AT);
}

static void check_named(const TriggerRow *row, EventColumn column, const char *example) {
  if (row_isnull(row, column))
    ereport(ERROR, (errcode(ERRCODE_NOT_NULL_VIOLATION), errmsg("%s must not be null", event_column_names[column]),
                    errdetail("Sinks route and name events by it."), errhint("Use a name such as %s.", example)));
}

/* The key is the aggregate's, unless one is given; an empty one says that the event has none. */
static void fill_key(TriggerRow *row) {
  if (row_isnull(row, EV_PARTITION_KEY)) {
    if (!row_isnull(row, EV_AGGREGATE_ID))
      row_set(row, EV_PARTITION_KEY, row_get(row, EV_AGGREGATE_ID));
  } else if (VARSIZE_ANY_EXHDR(PG_DETOAST_DATUM_PACKED(row_get(row, EV_PARTITION_KEY))) == 0) {
    row_set_null(row, EV_PARTITION_KEY);
  }
}

static void enqueue_event(TriggerRow *row, EventWriter writer) {
  EventHeaders headers;
  int n = 0;
  Datum *names = NULL;
  bool is_new = is_new_id(row);

  check_named(row, EV_AGGREGATE_TYPE, "Order");
  check_named(row, EV_EVENT_TYPE, "order.created");
  if (writer != WRITER_COPY) {
    reset_delivery(row);
    event_check_encoding(NULL, row);
    event_check(row, &headers);
    RouteSink **sinks = choose_sinks(row, &headers, writer, &n);
    event_check_sinks(row, &headers, sinks, n, true);
    /* The sinks are gone after the next statement: keep their names. */
    names = (Datum *)palloc(sizeof(Datum) * (n + 1));
    bool for_worker = n == 0;
    for (int i = 0; i < n; i++) {
      names[i] = CStringGetTextDatum(sinks[i]->name);
      for_worker = for_worker || !sinks[i]->is_manual;
    }
    if (for_worker)
      wake_at_commit();
    if (n > 0)
      row_set(row, EV_SINK, names[0]);
    if (writer == WRITER_USER && !row_isnull(row, EV_DEDUP_KEY))
      claim_dedup_key(row);
  } else if (!event_is_manual(row)) {
    wake_at_commit();
  }
  static const EventColumn servers[] = {EV_BLOCKED_BY, EV_OVERTAKEN_BY, EV_REDRIVE_LATE};
  for (EventColumn column : servers) /* or it could pass events of others of its key */
    row_set_null(row, column);
  stamp_transaction(row);
  draw_position(row);
  if (n > 1)
    insert_copies(row, is_new, names + 1, n - 1);
}

/* Whoever gives a position also says where the event goes and whose it is, past all checks: a restore may, a producer
 * may not. */
static void keep_position(const TriggerRow *row) {
  int64 position = DatumGetInt64(row_get(row, EV_POSITION));

  if (server_is_worker || is_partition_move(position))
    return;
  if (!is_owner(GetUserId()))
    ereport(ERROR,
            (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied to give an event its position"),
             errdetail("Only the owner of outbox.events may, to restore what was dumped."),
             errhint("Leave the column out, or NULL: the server draws the position.")));
  position_keep(position);
}

static void queue_rescan_if_ours(const TriggerRow *row) {
  if (!row_isnull(row, EV_ORIGIN) && DatumGetInt64(row_get(row, EV_ORIGIN)) == origin_here() && !event_is_manual(row))
    queue_rescan(DatumGetInt64(row_get(row, EV_POSITION)));
}

/* A pending row that brings its position: restored, or moved back by an UPDATE. It is routed and deduplicated
 * already, and keeps its place; the worker may have passed that. Of another origin, it waits for outbox.adopt(). */
static void return_event(TriggerRow *row) {
  keep_position(row);
  stamp_transaction(row);
  queue_rescan_if_ours(row);
}

/* A delivered event or a dead letter: the worker's own move, a user's, or a restore. */
static void record_event(TriggerRow *row) {
  if (!server_is_worker && row_isnull(row, EV_POSITION) && !is_owner(GetUserId()))
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                    errmsg("permission denied to insert an event that is not pending"),
                    errdetail("A dead letter that somebody redrives would reach its sink unchecked."),
                    errhint("Leave the column \"status\" out.")));
  if (row_has_status(row, "SENT"))
    row_default(row, EV_SENT_AT, TimestampTzGetDatum(GetCurrentTransactionStartTimestamp()));
  if (row_isnull(row, EV_XACT))
    stamp_transaction(row);
  if (row_isnull(row, EV_POSITION))
    draw_position(row);
  else
    keep_position(row);
  if (row_has_status(row, "FAILED") && !server_is_worker)
    queue_rescan_if_ours(row); /* it may hold its key */
}

SQL_FUNCTION(outbox_events_before_insert) {
  TriggerData *trigger = (TriggerData *)fcinfo->context;
  EventWriter writer = event_writer_take();
  TriggerRow row;

  if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BEFORE(trigger->tg_event) ||
      !TRIGGER_FIRED_FOR_ROW(trigger->tg_event) || !TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
    ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
                    errmsg("function \"%s\" must be called by a BEFORE INSERT row trigger", "events_before_insert")));

  trigger_row_open(&row, trigger->tg_relation, trigger->tg_trigtuple);
  fill_defaults(&row);
  if (row_isnull(&row, EV_POSITION) && writer != WRITER_COPY) /* what was enqueued before has its key, or has none */
    fill_key(&row);
  if (!row_has_status(&row, "PENDING"))
    record_event(&row);
  else if (row_isnull(&row, EV_POSITION))
    enqueue_event(&row, writer);
  else
    return_event(&row);
  return PointerGetDatum(heap_form_tuple(row.desc, row.values, row.isnull));
}

/* ---- outbox.enqueue() and outbox.enqueue_bytes() ------------------------------------------------------------- */

/* The argument as a column, NULL or not. */
static void take(FunctionCallInfo fcinfo, int argument, Datum *values, bool *isnull, EventColumn column) {
  isnull[column] = PG_ARGISNULL(argument);
  if (!PG_ARGISNULL(argument))
    values[column] = PG_GETARG_DATUM(argument);
}

typedef enum PayloadType {
  PAYLOAD_JSONB,
  PAYLOAD_JSON, /* or text, with headers of jsonb */
  PAYLOAD_TEXT, /* likewise, and the headers too */
  PAYLOAD_BYTES
} PayloadType;

/* json and text look alike. */
static void parse(Datum *values, const bool *isnull, EventColumn column) {
  if (!isnull[column])
    values[column] = DirectFunctionCall1(jsonb_in, CStringGetDatum(TextDatumGetCString(values[column])));
}

static void check_given(const bool *isnull) {
  if (!isnull[EV_AGGREGATE_ID] || !isnull[EV_PARTITION_KEY])
    return;
  ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("aggregate_id must not be null"),
                  errdetail("Events of one aggregate_id, or of one partition_key, are delivered in order."),
                  errhint("Name the thing that the event is about. An event without an order says so: "
                          "partition_key => ''.")));
}

static Datum enqueue(FunctionCallInfo fcinfo, PayloadType type, PGFunction id_to_text) {
  const bool bytes = type == PAYLOAD_BYTES;
  Datum values[EV_GIVEN] = {};
  bool isnull[EV_GIVEN];
  pg_uuid_t *id = (pg_uuid_t *)palloc(sizeof *id);
  int tail = bytes ? 5 : 4;

  /* No statement around the insert would say so. */
  PreventCommandDuringRecovery("outbox.enqueue()");
  PreventCommandIfReadOnly("outbox.enqueue()");
  PreventCommandIfParallelMode("outbox.enqueue()");
  memset(isnull, true, sizeof isnull);
  take(fcinfo, 0, values, isnull, EV_AGGREGATE_TYPE);
  take(fcinfo, 1, values, isnull, EV_AGGREGATE_ID);
  if (id_to_text && !isnull[EV_AGGREGATE_ID])
    values[EV_AGGREGATE_ID] =
        CStringGetTextDatum(DatumGetCString(DirectFunctionCall1(id_to_text, values[EV_AGGREGATE_ID])));
  take(fcinfo, 2, values, isnull, EV_EVENT_TYPE);
  take(fcinfo, 3, values, isnull, bytes ? EV_PAYLOAD_BYTES : EV_PAYLOAD);
  if (bytes)
    take(fcinfo, 4, values, isnull, EV_CONTENT_TYPE);
  take(fcinfo, tail + 0, values, isnull, EV_HEADERS);
  take(fcinfo, tail + 1, values, isnull, EV_PARTITION_KEY);
  take(fcinfo, tail + 2, values, isnull, EV_DEDUP_KEY);
  take(fcinfo, tail + 3, values, isnull, EV_AVAILABLE_AT);
  take(fcinfo, tail + 4, values, isnull, EV_SINK);
  take(fcinfo, tail + 5, values, isnull, EV_ID);

  check_given(isnull);
  if (type == PAYLOAD_JSON || type == PAYLOAD_TEXT)
    parse(values, isnull, EV_PAYLOAD);
  if (type == PAYLOAD_TEXT)
    parse(values, isnull, EV_HEADERS);
  if (isnull[EV_ID] || is_nil(values[EV_ID]))
    values[EV_ID] = new_uuid();
  isnull[EV_ID] = false;
  memcpy(id, DatumGetUUIDP(values[EV_ID]), sizeof *id);
  if (!isnull[EV_SINK]) /* as the caller, before we become the owner */
    route_require(TextDatumGetCString(values[EV_SINK]), GetUserId());

  if (!isnull[EV_DEDUP_KEY]) {
    OwnerScope scope = owner_enter();
    bool is_new = dedup_claim(values[EV_DEDUP_KEY], values[EV_ID], id);
    owner_leave(scope);
    if (!is_new)
      PG_RETURN_UUID_P(id);
  }
  event_insert(values, isnull);
  PG_RETURN_UUID_P(id);
}

/* The parser comes here when payload and headers are of two types, or the payload is no JSON. */
static PayloadType payload_type(FunctionCallInfo fcinfo) {
  Oid type = get_fn_expr_argtype(fcinfo->flinfo, 3);
  char category;
  bool preferred;

  get_type_category_preferred(type, &category, &preferred);
  if (type == JSONBOID)
    return PAYLOAD_JSONB;
  if (type == JSONOID || category == TYPCATEGORY_STRING)
    return PAYLOAD_JSON;
  ereport(ERROR,
          (errcode(ERRCODE_DATATYPE_MISMATCH), errmsg("payload is of type %s, not JSON", format_type_be(type)),
           type == BYTEAOID ? errhint("Bytes: SELECT outbox.enqueue_bytes(aggregate_type, aggregate_id, event_type, "
                                      "payload, 'application/avro');")
                            : errhint("SELECT outbox.enqueue(aggregate_type, aggregate_id, event_type, "
                                      "to_jsonb(payload));")));
  pg_unreachable();
}

SQL_FUNCTION(outbox_enqueue_text) {
  return enqueue(fcinfo, PAYLOAD_JSONB, NULL);
}

SQL_FUNCTION(outbox_enqueue_text_from_text) {
  return enqueue(fcinfo, PAYLOAD_TEXT, NULL);
}

SQL_FUNCTION(outbox_enqueue_text_of_any) {
  return enqueue(fcinfo, payload_type(fcinfo), NULL);
}

SQL_FUNCTION(outbox_enqueue_bigint) {
  return enqueue(fcinfo, PAYLOAD_JSONB, int8out);
}

SQL_FUNCTION(outbox_enqueue_bigint_from_text) {
  return enqueue(fcinfo, PAYLOAD_TEXT, int8out);
}

SQL_FUNCTION(outbox_enqueue_bigint_of_any) {
  return enqueue(fcinfo, payload_type(fcinfo), int8out);
}

SQL_FUNCTION(outbox_enqueue_uuid) {
  return enqueue(fcinfo, PAYLOAD_JSONB, uuid_out);
}

SQL_FUNCTION(outbox_enqueue_uuid_from_text) {
  return enqueue(fcinfo, PAYLOAD_TEXT, uuid_out);
}

SQL_FUNCTION(outbox_enqueue_uuid_of_any) {
  return enqueue(fcinfo, payload_type(fcinfo), uuid_out);
}

SQL_FUNCTION(outbox_enqueue_bytes_text) {
  return enqueue(fcinfo, PAYLOAD_BYTES, NULL);
}

SQL_FUNCTION(outbox_enqueue_bytes_bigint) {
  return enqueue(fcinfo, PAYLOAD_BYTES, int8out);
}

SQL_FUNCTION(outbox_enqueue_bytes_uuid) {
  return enqueue(fcinfo, PAYLOAD_BYTES, uuid_out);
}
