/*
 * enqueue.cpp: enqueues events. outbox.enqueue(), INSERT, COPY, ORMs and restores all reach the BEFORE INSERT
 * trigger, and all need INSERT on outbox.events: USAGE on the schema is also given to roles that only look. The
 * trigger function is the only function of the extension that sets no search_path: it runs for each row, and every
 * name in its statements is qualified.
 */
#include "server/base/origin.h"
#include "server/base/own_change.h"
#include "server/base/sql_function.h"
#include "server/base/uuid7.h"
#include "server/catalog/route.h"
#include "server/catalog/route_index.h"
#include "server/enqueue/update_trigger.h"
#include "server/enqueue/dedup.h"
#include "server/enqueue/enqueue_types.h"
#include "server/enqueue/event_check.h"
#include "server/enqueue/event_insert.h"
#include "server/enqueue/position.h"
#include "server/enqueue/session_events.h"
#include "server/shmem/wake.h"
#include "server/storage/owner_sql.h"

#include <time.h>

extern "C" {
#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"
#include "utils/xid8.h"
}

/* The last generated id, until a row is written with it: no other row can have it. */
static pg_uuid_t newest_id;
static bool newest_is_unused = false;

static bool is_new_id(const TriggerRow *row) {
  bool is_new = newest_is_unused && memcmp(DatumGetUUIDP(row_get(row, EV_ID)), &newest_id, sizeof newest_id) == 0;

  newest_is_unused = false;
  return is_new;
}

static Datum new_uuid(void) {
  static Uuid7Clock clock;
  static uint8_t random[64 * 8]; /* for 64 ids: one call per id would double the cost of new_uuid() */
  static size_t used = sizeof random;
  pg_uuid_t *uuid = palloc_object(pg_uuid_t);
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

/* Languages without NULL send the nil UUID for an id that was never set (Go's uuid.UUID{}, .NET's Guid.Empty). */
static bool is_nil(Datum id) {
  static const pg_uuid_t nil = {};

  return memcmp(DatumGetUUIDP(id), &nil, sizeof nil) == 0;
}

/* ORMs insert explicit NULLs, to which a column's DEFAULT does not apply. */
static void fill_defaults(TriggerRow *row) {
  if (row_isnull(row, EV_ID) || (row_isnull(row, EV_POSITION) && is_nil(row_get(row, EV_ID))))
    row_set(row, EV_ID, new_uuid());
  row_default(row, EV_CREATED_AT, TimestampTzGetDatum(GetCurrentTransactionStartTimestamp()));
  row_default(row, EV_ATTEMPTS, Int32GetDatum(0));
  if (DatumGetInt32(row_get(row, EV_ATTEMPTS)) > 0) /* it is failing: event_row_failed() looks at this time */
    row_default(row, EV_LAST_ATTEMPT_AT, TimestampTzGetDatum(GetCurrentTransactionStartTimestamp()));
  if (row_isnull(row, EV_STATUS))
    row_set(row, EV_STATUS, CStringGetTextDatum("PENDING"));
}

/* Sets position and origin. The transaction must have its ID before (position_draw()). */
static void draw_position(TriggerRow *row) {
  row_set(row, EV_POSITION, Int64GetDatum(position_draw()));
  row_set(row, EV_ORIGIN, Int64GetDatum(origin_here()));
}

static void stamp_transaction(TriggerRow *row) {
  row_set(row, EV_XACT, FullTransactionIdGetDatum(GetTopFullTransactionId()));
}

static void stamp_application(TriggerRow *row) {
  if (application_name && application_name[0] != '\0')
    row_set(row, EV_APPLICATION, CStringGetTextDatum(application_name));
  else
    row_set_null(row, EV_APPLICATION);
}

/* Returns the sinks of the event: the one that it names, or all that take it. */
static RouteSink **choose_sinks(const TriggerRow *row, const EventHeaders *headers, EventWriter writer, int *n) {
  if (row_isnull(row, EV_SINK)) {
    RouteEvent event = {TextDatumGetCString(row_get(row, EV_AGGREGATE_TYPE)),
                        TextDatumGetCString(row_get(row, EV_EVENT_TYPE)), headers->list, headers->n};
    return route_takers(&event, n);
  }
  char *name = TextDatumGetCString(row_get(row, EV_SINK));
  RouteSink *sink = writer == WRITER_ENQUEUE ? route_find(name) : NULL;
  RouteSink **chosen = palloc_object(RouteSink *);
  *chosen = sink ? sink : route_require(name, GetUserId());
  *n = 1;
  return chosen;
}

/* Gives the row itself to a sink for which its id is already pending. Its INSERT then meets the unique index, which
 * refuses the whole event, or adds nothing with ON CONFLICT DO NOTHING. In SPI. */
static bool take_pending_sink(TriggerRow *row, Datum *sinks, int n) {
  static Statement find = make_statement<UUIDOID, TEXTARRAYOID>(
      "SELECT sink FROM outbox.events_pending WHERE id OPERATOR(pg_catalog.=) $1 "
      "AND sink OPERATOR(pg_catalog.=) ANY ($2) LIMIT 1");
  Datum values[] = {row_get(row, EV_ID), text_array(sinks, n)};
  if (owner_execute(&find, values, NULL) == 0)
    return false;
  char *sink = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
  for (int i = 0; i < n; i++)
    if (strcmp(TextDatumGetCString(sinks[i]), sink) == 0)
      row_set(row, EV_SINK, sinks[i]);
  return true;
}

/* Another transaction has committed the id for a further sink while this one waited for it. */
[[noreturn]] static void report_pending(const TriggerRow *row) {
  ereport(ERROR,
          (errcode(ERRCODE_UNIQUE_VIOLATION),
           errmsg("event %s is already pending", DatumGetCString(DirectFunctionCall1(uuid_out, row_get(row, EV_ID)))),
           errdetail("Another transaction has just enqueued it.")));
  pg_unreachable();
}

/* Inserts one more row for each sink but the first, so that each sink has its own progress, retries and dead letters.
 */
static void insert_copies(TriggerRow *row, bool is_new, Datum *sinks, int n) {
  Datum values[EV_GIVEN];
  bool isnull[EV_GIVEN];

  for (int column = 0; column < EV_GIVEN; column++) {
    isnull[column] = row_isnull(row, (EventColumn)column);
    values[column] = row_get(row, (EventColumn)column);
  }
  if (is_new) {
    event_insert_copies(values, isnull, sinks + 1, n - 1);
    return;
  }
  OwnerScope scope = owner_enter();
  isnull[EV_SINK] = false;
  if (!take_pending_sink(row, sinks, n))
    for (int i = 1; i < n; i++) {
      values[EV_SINK] = sinks[i];
      if (!event_insert_copy_if_missing(values, isnull))
        report_pending(row);
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

/* Resets the columns that delivery sets. Only the owner may set them, for a restore. */
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

/* The key defaults to aggregate_id. An empty one means that the event has no key. */
static void fill_key(TriggerRow *row) {
  if (row_isnull(row, EV_PARTITION_KEY)) {
    if (!row_isnull(row, EV_AGGREGATE_ID))
      row_set(row, EV_PARTITION_KEY, row_get(row, EV_AGGREGATE_ID));
  } else if (VARSIZE_ANY_EXHDR(PG_DETOAST_DATUM_PACKED(row_get(row, EV_PARTITION_KEY))) == 0) {
    row_set_null(row, EV_PARTITION_KEY);
  }
}

/* An application that writes its own clock's time means "now", also when that clock is ahead. As a scheduled event it
 * would neither block its key nor wait for it, and later events would overtake it. NULL rather than the time: a
 * worker whose round began before this time would take the event for a scheduled one. */
static void forget_present_time(TriggerRow *row) {
  static const int CLOCK_SKEW_MS = 5000;

  if (row_isnull(row, EV_AVAILABLE_AT))
    return;
  const TimestampTz time = DatumGetTimestampTz(row_get(row, EV_AVAILABLE_AT)), now = GetCurrentTimestamp();
  if (time <= TimestampTzPlusMilliseconds(now, CLOCK_SKEW_MS) &&
      time >= TimestampTzPlusMilliseconds(now, -CLOCK_SKEW_MS))
    row_set_null(row, EV_AVAILABLE_AT);
}

static void enqueue_event(TriggerRow *row, EventWriter writer) {
  EventHeaders headers;
  EventSize size;
  int n = 0;
  Datum *names = NULL;
  bool is_new = is_new_id(row);

  check_named(row, EV_AGGREGATE_TYPE, "Order");
  check_named(row, EV_EVENT_TYPE, "order.created");
  if (writer != WRITER_COPY) {
    reset_delivery(row);
    forget_present_time(row);
    event_check_size(NULL, row, &size);
    event_check_encoding(NULL, row);
    event_check(row, &headers);
    RouteSink **sinks = choose_sinks(row, &headers, writer, &n);
    event_check_sinks(row, &headers, &size, sinks, n, true);
    /* The next statement may rebuild the cache of sinks, so their names are copied. */
    names = palloc_array(Datum, n + 1);
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
  static const EventColumn extension_columns[] = {EV_BLOCKED_BY, EV_OVERTAKEN_BY, EV_REDRIVE_LATE,
                                                  EV_ACKNOWLEDGEMENT};
  /* A writer that could set these columns could make the event overtake others of its key. */
  for (EventColumn column : extension_columns)
    row_set_null(row, column);
  stamp_application(row);
  stamp_transaction(row);
  draw_position(row);
  if (n > 1)
    insert_copies(row, is_new, names, n);
}

/* A row with a position keeps its sink and origin without checks. Only the owner may insert one, for a restore. */
static void keep_position(const TriggerRow *row) {
  int64 position = DatumGetInt64(row_get(row, EV_POSITION));

  if (is_own_change() || is_partition_move(position))
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

/* A pending row that has a position: restored, or moved back by an UPDATE. It is routed and deduplicated already. The
 * worker may have passed its position, so it is rescanned. A row of another origin waits for outbox.adopt(). */
static void return_event(TriggerRow *row) {
  keep_position(row);
  stamp_transaction(row);
  queue_rescan_if_ours(row);
}

/* A delivered event or a dead letter, written by the worker, a user or a restore. */
static void record_event(TriggerRow *row) {
  if (row_isnull(row, EV_POSITION) && !is_owner(GetUserId()))
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                    errmsg("permission denied to insert an event that is not pending"),
                    errdetail("A redrive would send an inserted dead letter to its sink unchecked."),
                    errhint("Leave the column \"status\" out.")));
  if (row_has_status(row, "SENT"))
    row_default(row, EV_SENT_AT, TimestampTzGetDatum(GetCurrentTransactionStartTimestamp()));
  if (row_isnull(row, EV_XACT))
    stamp_transaction(row);
  if (row_isnull(row, EV_POSITION))
    draw_position(row);
  else
    keep_position(row);
  if (row_has_status(row, "FAILED") && !is_own_change())
    queue_rescan_if_ours(row); /* it may block its key */
}

SQL_FUNCTION(outbox_events_before_insert) {
  TriggerData *trigger = (TriggerData *)fcinfo->context;
  EventWriter writer = event_writer();
  TriggerRow row;

  if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BEFORE(trigger->tg_event) ||
      !TRIGGER_FIRED_FOR_ROW(trigger->tg_event) || !TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
    ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
                    errmsg("function \"%s\" must be called by a BEFORE INSERT row trigger", "events_before_insert")));

  trigger_row_open(&row, trigger->tg_relation, trigger->tg_trigtuple);
  fill_defaults(&row);
  /* A row that was enqueued before keeps its key, also if it has none. */
  if (row_isnull(&row, EV_POSITION) && writer != WRITER_COPY)
    fill_key(&row);
  if (writer == WRITER_COPY && !row_isnull(&row, EV_POSITION))
    ; /* it has all that the row has which waited for the sink */
  else if (!row_has_status(&row, "PENDING"))
    record_event(&row);
  else if (row_isnull(&row, EV_POSITION)) {
    enqueue_event(&row, writer);
    if (writer != WRITER_COPY)
      session_events_add(DatumGetUUIDP(row_get(&row, EV_ID)));
  } else
    return_event(&row);
  return PointerGetDatum(heap_form_tuple(row.desc, row.values, row.isnull));
}

/* ---- outbox.enqueue() and outbox.enqueue_bytes() ------------------------------------------------------------- */

/* Copies an argument into a column. */
static void copy_argument(FunctionCallInfo fcinfo, int argument, Datum *values, bool *isnull, EventColumn column) {
  isnull[column] = PG_ARGISNULL(argument);
  if (!PG_ARGISNULL(argument))
    values[column] = PG_GETARG_DATUM(argument);
}

/* json and text have the same representation. */
static Datum json_to_jsonb(Datum value) {
  return DirectFunctionCall1(jsonb_in, CStringGetDatum(TextDatumGetCString(value)));
}

/* PUBLIC may call the functions, so that one GRANT gives the right to enqueue in every way. */
static void check_right_to_enqueue(void) {
  if (pg_class_aclcheck(outbox_events_oid(), GetUserId(), ACL_INSERT) == ACLCHECK_OK)
    return;
  const char *role = GetUserNameFromId(GetUserId(), false);
  ereport(ERROR,
          (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied to enqueue events"),
           errdetail("Role \"%s\" does not have INSERT on outbox.events, which outbox.enqueue() needs too.", role),
           errhint("GRANT INSERT ON outbox.events TO %s;", quote_identifier(role))));
}

static void check_order(const bool *isnull) {
  if (!isnull[EV_AGGREGATE_ID] || !isnull[EV_PARTITION_KEY])
    return;
  ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("aggregate_id must not be null"),
                  errdetail("Events of one aggregate_id, or of one partition_key, are delivered in order."),
                  errhint("Name the thing that the event is about. An event without an order says so: "
                          "partition_key => ''.")));
}

SQL_FUNCTION(outbox_enqueue) {
  EnqueueTypes *types = enqueue_types(fcinfo->flinfo);
  const bool bytes = types->is_bytes;
  Datum values[EV_GIVEN] = {};
  bool isnull[EV_GIVEN];
  pg_uuid_t *id = palloc_object(pg_uuid_t);
  int after_payload = bytes ? 5 : 4;

  /* The insert runs without an SQL statement, which would make these checks. */
  PreventCommandDuringRecovery("outbox.enqueue()");
  PreventCommandIfReadOnly("outbox.enqueue()");
  PreventCommandIfParallelMode("outbox.enqueue()");
  check_right_to_enqueue();
  memset(isnull, true, sizeof isnull);
  copy_argument(fcinfo, 0, values, isnull, EV_AGGREGATE_TYPE);
  copy_argument(fcinfo, 1, values, isnull, EV_AGGREGATE_ID);
  if (!isnull[EV_AGGREGATE_ID])
    values[EV_AGGREGATE_ID] = enqueue_key(types, values[EV_AGGREGATE_ID]);
  copy_argument(fcinfo, 2, values, isnull, EV_EVENT_TYPE);
  copy_argument(fcinfo, 3, values, isnull, bytes ? EV_PAYLOAD_BYTES : EV_PAYLOAD);
  if (bytes)
    copy_argument(fcinfo, 4, values, isnull, EV_CONTENT_TYPE);
  copy_argument(fcinfo, after_payload + 0, values, isnull, EV_HEADERS);
  copy_argument(fcinfo, after_payload + 1, values, isnull, EV_PARTITION_KEY);
  copy_argument(fcinfo, after_payload + 2, values, isnull, EV_DEDUP_KEY);
  copy_argument(fcinfo, after_payload + 3, values, isnull, EV_AVAILABLE_AT);
  copy_argument(fcinfo, after_payload + 4, values, isnull, EV_SINK);
  copy_argument(fcinfo, after_payload + 5, values, isnull, EV_ID);

  check_order(isnull);
  if (types->parse_payload && !isnull[EV_PAYLOAD])
    values[EV_PAYLOAD] = json_to_jsonb(values[EV_PAYLOAD]);
  if (types->parse_headers && !isnull[EV_HEADERS])
    values[EV_HEADERS] = json_to_jsonb(values[EV_HEADERS]);
  if (isnull[EV_ID] || is_nil(values[EV_ID]))
    values[EV_ID] = new_uuid();
  isnull[EV_ID] = false;
  memcpy(id, DatumGetUUIDP(values[EV_ID]), sizeof *id);
  if (!isnull[EV_SINK]) { /* as the caller, before the switch to the owner, who may write any row */
    const char *sink = TextDatumGetCString(values[EV_SINK]);
    hold_sink_names();
    if (is_owner(GetUserId()))
      route_must_find(sink);
    else
      route_require(sink, GetUserId());
  }

  if (!isnull[EV_DEDUP_KEY]) {
    OwnerScope scope = owner_enter();
    bool is_new = dedup_claim(values[EV_DEDUP_KEY], values[EV_ID], id);
    owner_leave(scope);
    if (!is_new) {
      session_events_add_committed(id);
      PG_RETURN_UUID_P(id);
    }
  }
  event_insert(values, isnull);
  PG_RETURN_UUID_P(id);
}
