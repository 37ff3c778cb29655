/*
 * preview.cpp: outbox.preview(). It makes the event from the row as the worker does, and the message from the event
 * as the sink does, and does not send it.
 */
#include "server/base/library_version.h"
#include "server/base/delivery_error.h"
#include "server/base/sql_function.h"
#include "server/catalog/route.h"
#include "server/catalog/route_index.h"
#include "server/catalog/sink_secrets.h"
#include "server/catalog/wrappers.h"
#include "server/event/event_row.h"
#include "server/event/event_size.h"
#include "server/storage/owner_sql.h"

#include <span>

extern "C" {
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "nodes/pg_list.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"
#include "utils/uuid.h"
}

/* The event for one sink. */
typedef struct Message {
  char *sink; /* NULL = unrouted */
  char *aggregate_type;
  char *event_type;
  ob_event event;
} Message;

typedef struct Reading {
  MemoryContext context;
  const char *wanted; /* NULL = every sink */
  List *messages;
} Reading;

static const char *uuid_cstring(const pg_uuid_t *id) {
  return DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(id)));
}

/* ---- the event's rows ---- */

/* If the event has several rows for one sink (delivered and enqueued again), the first is the one that is sent next,
 * or was sent last. */
static Statement rows_of_event = make_statement<UUIDOID>(
    "SELECT " EVENT_ROW_COLUMNS " FROM outbox.events WHERE id = $1 "
    "ORDER BY sink, CASE status WHEN 'FAILED' THEN 2 WHEN 'SENT' THEN 3 ELSE 1 END, position DESC");

static bool same_sink(const char *a, const char *b) {
  return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool has_message_for(const Reading *reading, const char *sink) {
  ListCell *cell;

  foreach (cell, reading->messages)
    if (same_sink(((const Message *)lfirst(cell))->sink, sink))
      return true;
  return false;
}

/* How large a payload may be that is shown for the sink; of an unrouted event, for some sink. */
static size_t max_payload_for(const char *sink) {
  RouteSink *known = sink ? route_find(sink) : NULL;
  size_t most = 0;
  int n;

  if (known)
    return route_max_payload(known);
  RouteSink *all = route_sinks(&n);
  for (RouteSink &each : std::span(all, n))
    most = Max(most, route_max_payload(&each));
  return most;
}

static bool visit_row(TupleTableSlot *tuple, void *context) {
  Reading *reading = (Reading *)context;
  MemoryContext caller = MemoryContextSwitchTo(reading->context);
  EventRow row;
  event_row_read(tuple, &row);
  char *sink = row.sink ? pnstrdup(row.sink, row.sink_length) : NULL;
  bool is_wanted = reading->wanted && same_sink(sink, reading->wanted);

  if (is_wanted)
    reading->messages = NIL; /* the row of the wanted sink replaces a row of another sink */
  if (reading->wanted ? reading->messages == NIL : !has_message_for(reading, sink)) {
    Message *message = palloc0_object(Message);
    message->sink = sink;
    message->aggregate_type = event_row_aggregate_type(&row);
    message->event_type = event_row_event_type(&row);
    uint32 bytes;
    const size_t most = max_payload_for(reading->wanted ? reading->wanted : sink);
    event_row_to_event(&row, true, most, &message->event, &bytes);
    reading->messages = lappend(reading->messages, message);
  }
  MemoryContextSwitchTo(caller);
  return !is_wanted;
}

static List *read_messages(const pg_uuid_t *id, const char *sink) {
  Reading reading = {CurrentMemoryContext, sink, NIL};
  Datum values[] = {UUIDPGetDatum(id)};

  wrappers_tell_origin(); /* a promotion in this session's life changes no catalog */
  OwnerScope scope = owner_enter();
  event_rows_begin(reading.context);
  statement_read(&rows_of_event, values, GetActiveSnapshot(), visit_row, &reading);
  owner_leave(scope);
  if (reading.messages == NIL)
    ereport(
        ERROR,
        (errcode(ERRCODE_NO_DATA_FOUND), errmsg("there is no event %s", uuid_cstring(id)),
         errdetail("It was delivered and not kept, deleted, never enqueued, or its transaction has not committed."),
         errhint("SELECT id, sink, status FROM outbox.events ORDER BY position DESC LIMIT 10; -- delivered events "
                 "are kept for outbox.retention")));
  return reading.messages;
}

/* The sinks that would take an unrouted event. */
static List *names_of_takers(const Message *message, const pg_uuid_t *id) {
  List *names = NIL;
  int n;
  RouteEvent event = {message->aggregate_type, message->event_type, message->event.headers, message->event.n_headers};
  RouteSink **takers = route_takers(&event, &n);

  for (int i = 0; i < n; i++)
    names = lappend(names, pstrdup(takers[i]->name));
  if (names == NIL)
    ereport(ERROR,
            (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("no sink takes event %s", uuid_cstring(id)),
             errdetail("Its aggregate_type is \"%s\", its event_type \"%s\": no sink's options \"aggregates\", "
                       "\"events\" and \"match\" let it pass.",
                       message->aggregate_type, message->event_type),
             errhint("Name a sink: SELECT * FROM outbox.preview('%s', '...');", uuid_cstring(id))));
  return names;
}

/* ---- the parts of a message ---- */

/* Returns NULL when the bytes are not UTF-8, or cannot be converted to the database's encoding. */
static text *text_of_bytes(const ob_text *bytes) {
  int encoding = GetDatabaseEncoding();

  if (encoding == PG_UTF8 || encoding == PG_SQL_ASCII)
    return pg_verify_mbstr(encoding, bytes->data, (int)bytes->len, true)
               ? cstring_to_text_with_len(bytes->data, (int)bytes->len)
               : NULL;
  Oid conversion = FindDefaultConversionProc(PG_UTF8, encoding);
  if (!OidIsValid(conversion) || !pg_verify_mbstr(PG_UTF8, bytes->data, (int)bytes->len, true))
    return NULL;
  Size room = (Size)bytes->len * MAX_CONVERSION_GROWTH + 1;
  char *converted = (char *)MemoryContextAllocHuge(CurrentMemoryContext, room);
  int taken =
      pg_do_encoding_conversion_buf(conversion, PG_UTF8, encoding, (unsigned char *)bytes->data, (int)bytes->len,
                                    (unsigned char *)converted, (int)Min(room, INT_MAX), true);
  text *result = taken == (int)bytes->len ? cstring_to_text(converted) : NULL;
  pfree(converted);
  return result;
}

static void put_part(ReturnSetInfo *result, const char *sink, const ob_part *part) {
  Datum values[5];
  bool nulls[5] = {false, false, true, true, true};

  values[0] = CStringGetTextDatum(sink);
  values[1] = CStringGetTextDatum(part->part);
  if (part->name.data) {
    text *name = text_of_bytes(&part->name);
    values[2] = PointerGetDatum(name);
    nulls[2] = name == NULL;
  }
  if (part->bytes.data) {
    text *value = text_of_bytes(&part->bytes);
    values[3] = PointerGetDatum(value);
    nulls[3] = value == NULL;
    values[4] = PointerGetDatum(cstring_to_text_with_len(part->bytes.data, (int)part->bytes.len));
    nulls[4] = false;
  } else if (part->text.data) {
    text *value = text_of_bytes(&part->text);
    if (value == NULL) { /* text that the database's encoding cannot represent is returned as bytes of UTF-8 */
      values[4] = PointerGetDatum(cstring_to_text_with_len(part->text.data, (int)part->text.len));
      nulls[4] = false;
    }
    values[3] = PointerGetDatum(value);
    nulls[3] = value == NULL;
  }
  tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* The worker would not make the event for this sink. */
static void check_size(RouteSink *sink, const ob_event *event) {
  const EventSize size = {EVENT_PAYLOAD_TOO_LARGE, true, event->payload.len, 0};
  const size_t most = route_max_payload(sink);
  ob_error error = {};

  if (event->refused)
    error = *event->refused;
  else if (event->payload.len > most)
    event_size_error(&size, most, &error);
  if (error.kind != OB_OK)
    delivery_error_of_sink(&error, sink->name);
}

static void put_message(ReturnSetInfo *result, const char *sink_name, const ob_event *event) {
  RouteSink *sink = route_must_find(sink_name);
  const ob_checker *checker = route_checker(sink, KIND_WHOLE);
  ob_error error;

  if (checker == NULL)
    ereport(ERROR,
            (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("sink \"%s\" is misconfigured", sink_name),
             errdetail("The installed library does not accept its options, or lacks its kind of sink."),
             errhint("Look at outbox.sinks.last_error; options are corrected with ALTER SERVER %s.",
                     quote_identifier(sink_name))));
  check_size(sink, event);
  ob_checker *with_secrets = sink_checker_with_secrets(sink->server_oid, sink->kind);
  int64 now = event_unix_us(GetCurrentStatementStartTimestamp()) / USECS_PER_SEC;
  const ob_checker *shown_by = with_secrets ? with_secrets : checker;
  ob_preview *preview = shown_by->kind->preview_open(shown_by, event, now, &error);
  ob_release(with_secrets);
  if (preview == NULL)
    delivery_error_of_sink(&error, sink_name);
  PG_TRY();
  {
    for (const ob_part &part : std::span(preview->parts, preview->n))
      put_part(result, sink_name, &part);
  }
  PG_FINALLY();
  { ob_release(preview); }
  PG_END_TRY();
}

SQL_FUNCTION(outbox_preview) {
  ReturnSetInfo *result = rows_of(fcinfo, 5);

  if (PG_ARGISNULL(0))
    ereport(ERROR,
            (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("the id of the event is null"),
             errdetail("outbox.preview() shows one event."),
             errhint("Many: SELECT p.* FROM outbox.events AS e, outbox.preview(e.id, e.sink) AS p WHERE ...")));
  const pg_uuid_t *id = PG_GETARG_UUID_P(0);
  const char *sink = PG_ARGISNULL(1) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(1));
  if (sink)
    route_must_find(sink);

  List *messages = read_messages(id, sink);
  ListCell *cell, *name;
  foreach (cell, messages) {
    const Message *message = (const Message *)lfirst(cell);
    if (sink || message->sink) {
      put_message(result, sink ? sink : message->sink, &message->event);
      continue;
    }
    foreach (name, names_of_takers(message, id))
      put_message(result, (const char *)lfirst(name), &message->event);
  }
  PG_RETURN_NULL();
}
