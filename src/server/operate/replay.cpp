/*
 * replay.cpp: enqueues delivered events that are still kept again, for one sink.
 * A replay of one million events is one INSERT … SELECT of 36 s (16 s for a plain one of the same rows).
 */
#include "server/base/server.h"

extern "C" {
#include "access/xact.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
}

#include <ctype.h>

#include "server/base/sql_function.h"
#include "server/catalog/route.h"
#include "server/catalog/route_index.h"
#include "server/enqueue/event_insert.h"
#include "server/event/header_text.h"
#include "server/shmem/wake.h"
#include "server/storage/owner_sql.h"

/* Enqueues each id once: the sink's own row if there is one, otherwise the first row of another sink. available_at is
 * now(), so that age and latency count from the replay. */
#define REPLAYED                                                                                                     \
  "e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload, e.payload_bytes, e.content_type, e.headers, "    \
  "e.partition_key, e.dedup_key, e.seq, e.created_at, e.position"
#define NOT_ENQUEUED_AGAIN                                                                                           \
  "NOT EXISTS (SELECT FROM outbox.events_pending AS p WHERE p.sink = $1 AND p.id = k.id) "                           \
  "AND NOT EXISTS (SELECT FROM outbox.events_failed AS f WHERE f.sink = $1 AND f.id = k.id) "
#define ENQUEUE_ONCE                                                                                                 \
  "INSERT INTO outbox.events_pending (id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, "        \
  "content_type, headers, partition_key, dedup_key, seq, created_at, available_at, sink) "                           \
  "SELECT e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload, e.payload_bytes, e.content_type, "        \
  "e.headers, e.partition_key, e.dedup_key, e.seq, e.created_at, now(), $1 FROM once AS e ORDER BY e.position "      \
  "ON CONFLICT DO NOTHING"
static const char *const REPLAY =
    "WITH kept AS (SELECT " REPLAYED ", true AS own FROM outbox.events_sent AS e "
    "WHERE e.sent_at >= $2 AND e.sent_at < $3 AND e.sink = $1 "
    "AND outbox_internal.matches_globs(e.event_type, $4) "
    "UNION ALL SELECT " REPLAYED ", false FROM outbox.events_sent AS e "
    "WHERE e.sent_at >= $2 AND e.sent_at < $3 AND e.sink IS DISTINCT FROM $1 "
    "AND outbox_internal.matches_globs(e.event_type, $4) "
    "AND outbox_internal.route_refusal($1, e.aggregate_type, e.event_type, e.headers) IS NULL "
    "AND NOT EXISTS (SELECT FROM outbox.events_sent AS had WHERE had.sink = $1 AND had.id = e.id)), "
    "once AS (SELECT DISTINCT ON (k.id) k.* FROM kept AS k WHERE " NOT_ENQUEUED_AGAIN
    "ORDER BY k.id, k.own DESC, k.position) " ENQUEUE_ONCE;
/* The sink's own last row, otherwise the last row of another sink. */
static const char *const REPLAY_ONE = "WITH kept AS (SELECT " REPLAYED ", e.sink = $1 AS own "
                                      "FROM outbox.events_sent AS e WHERE e.id = $2), "
                                      "once AS (SELECT k.* FROM kept AS k WHERE " NOT_ENQUEUED_AGAIN
                                      "ORDER BY k.own DESC NULLS LAST, k.position DESC LIMIT 1) " ENQUEUE_ONCE;

/* ---- filters of outbox.replay() ----------------------------------------------------------------------------- */

static char **globs_of(const char *text) {
  bool empty = true; /* the current item */
  bool bad = false;

  for (const char *at = text;; at++) {
    if (*at == ',' || *at == '\0') {
      bad = bad || empty;
      empty = true;
      if (*at == '\0')
        break;
    } else if (!isspace((unsigned char)*at)) {
      empty = false;
    }
  }
  if (bad)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid list of event types: \"%s\"", text),
                    errdetail("It has an empty item."),
                    errhint("Give globs, separated by commas: 'order.*, customer.created'. All: '*'.")));
  return route_globs(text);
}

typedef struct Globs {
  text *source;
  char **list;
} Globs;

SQL_FUNCTION(outbox_matches_globs) {
  text *source = PG_GETARG_TEXT_PP(1);
  Globs *globs = (Globs *)fcinfo->flinfo->fn_extra;

  if (globs == NULL || VARSIZE_ANY_EXHDR(globs->source) != VARSIZE_ANY_EXHDR(source) ||
      memcmp(VARDATA_ANY(globs->source), VARDATA_ANY(source), VARSIZE_ANY_EXHDR(source)) != 0) {
    MemoryContext caller = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);
    char *copy = text_to_cstring(source);
    globs = palloc_object(Globs);
    *globs = {cstring_to_text(copy), globs_of(copy)};
    MemoryContextSwitchTo(caller);
    fcinfo->flinfo->fn_extra = globs;
  }
  PG_RETURN_BOOL(route_globs_match(globs->list, text_to_cstring(PG_GETARG_TEXT_PP(0)), ""));
}

SQL_FUNCTION(outbox_route_refusal) {
  if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2))
    PG_RETURN_NULL();
  const RouteSink *sink = route_find(text_to_cstring(PG_GETARG_TEXT_PP(0)));
  if (sink == NULL) /* it was dropped or renamed, which this statement's snapshot does not show */
    PG_RETURN_TEXT_P(cstring_to_text(""));
  RouteEvent event = {text_to_cstring(PG_GETARG_TEXT_PP(1)), text_to_cstring(PG_GETARG_TEXT_PP(2)), NULL, 0};
  if (sink->by_headers && !PG_ARGISNULL(3))
    event.headers = header_list(PG_GETARG_JSONB_P(3), &event.n_headers);
  const char *refusal = route_refusal(sink, &event);
  if (refusal == NULL)
    PG_RETURN_NULL();
  PG_RETURN_TEXT_P(cstring_to_text(refusal));
}

/* As outbox_route_refusal(), by the options of a sink that was dropped. */
SQL_FUNCTION(outbox_dropped_sink_takes) {
  RouteSink sink;

  if (PG_ARGISNULL(1) || PG_ARGISNULL(2))
    PG_RETURN_BOOL(false);
  route_read_options(PG_ARGISNULL(0) ? (Datum)0 : PG_GETARG_DATUM(0), PG_ARGISNULL(0), &sink);
  RouteEvent event = {text_to_cstring(PG_GETARG_TEXT_PP(1)), text_to_cstring(PG_GETARG_TEXT_PP(2)), NULL, 0};
  if (sink.by_headers && !PG_ARGISNULL(3))
    event.headers = header_list(PG_GETARG_JSONB_P(3), &event.n_headers);
  PG_RETURN_BOOL(route_refusal(&sink, &event) == NULL);
}

/* ---- arguments ------------------------------------------------------------------------------------------------ */

static const char *time_text(TimestampTz time) {
  return DatumGetCString(DirectFunctionCall1(timestamptz_out, TimestampTzGetDatum(time)));
}

enum { SINK, SINCE, UNTIL, EVENTS, EVENT }; /* the arguments of outbox.replay() */

static void check_arguments(FunctionCallInfo fcinfo) {
  static const char example[] =
      "Such as outbox.replay('sink', '1 hour') or outbox.replay('sink', event => '018f0000-0000-7000-8000-000000000000').";

  if (PG_ARGISNULL(SINK) || PG_ARGISNULL(EVENTS))
    ereport(ERROR,
            (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
             errmsg("\"%s\" must not be null", PG_ARGISNULL(SINK) ? "sink" : "events"), errhint("%s", example)));
  if (PG_ARGISNULL(SINCE) && PG_ARGISNULL(EVENT))
    ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("\"since\" and \"event\" are both null"),
                    errhint("%s", example)));
  const char *events = text_to_cstring(PG_GETARG_TEXT_PP(EVENTS));
  if (!PG_ARGISNULL(EVENT) && (!PG_ARGISNULL(SINCE) || !PG_ARGISNULL(UNTIL) || strcmp(events, "*") != 0))
    ereport(ERROR,
            (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
             errmsg("\"event\" excludes \"since\", \"until\" and \"events\""),
             errdetail("One event is sent again by its id, whenever it was delivered."), errhint("%s", example)));
  (void)globs_of(events);
}

/* A time, or an interval counted back from now. In SPI. */
static TimestampTz time_argument(FunctionCallInfo fcinfo, int argument, const char *name) {
  const Oid type = getBaseType(get_fn_expr_argtype(fcinfo->flinfo, argument));
  Datum value = PG_GETARG_DATUM(argument);
  Oid output;
  bool is_varlena, preferred;
  char category;

  switch (type) {
  case TIMESTAMPTZOID:
    return DatumGetTimestampTz(value);
  case TIMESTAMPOID:
    return DatumGetTimestampTz(DirectFunctionCall1(timestamp_timestamptz, value));
  case DATEOID:
    return DatumGetTimestampTz(DirectFunctionCall1(date_timestamptz, value));
  case INTERVALOID:
    return DatumGetTimestampTz(DirectFunctionCall2(
        timestamptz_mi_interval, TimestampTzGetDatum(GetCurrentTransactionStartTimestamp()), value));
  default:
    break;
  }
  get_type_category_preferred(type, &category, &preferred);
  if (category != TYPCATEGORY_STRING)
    ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
                    errmsg("\"%s\" is of type %s, not a time or an interval", name, format_type_be(type)),
                    errhint("Such as '2026-01-31 12:00', or '2 hours' for two hours ago.")));
  getTypeOutputInfo(type, &output, &is_varlena);
  const char *given = OidOutputFunctionCall(output, value);
  Oid given_type = TEXTOID;
  Datum given_text = CStringGetTextDatum(given);
  bool isnull = true;
  Datum time = 0;
  if (SPI_execute_with_args("SELECT outbox_internal.replay_time($1)", 1, &given_type, &given_text, NULL, false, 1) ==
          SPI_OK_SELECT &&
      SPI_processed == 1)
    time = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
  if (isnull)
    elog(ERROR, "could not read the time \"%s\"", given);
  return DatumGetTimestampTz(time);
}

static Oid check_sink(const char *name) {
  RouteSink *sink = route_must_find(name);

  if (outbox_server_aclcheck(sink->server_oid, GetUserId()) != ACLCHECK_OK)
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied for sink \"%s\"", name),
                    errdetail("To send events again, a role needs USAGE on the foreign server."),
                    errhint("GRANT USAGE ON FOREIGN SERVER %s TO %s;", quote_identifier(name),
                            quote_identifier(GetUserNameFromId(GetUserId(), false)))));
  return sink->server_oid;
}

typedef struct Replay {
  const char *statement;
  int n_values;
  Oid types[4];
  Datum values[4];
  uint64 n;
} Replay;

static void insert_rows(void *argument) {
  Replay *replay = (Replay *)argument;

  /* Planned at each call, because the number of rows differs by orders of magnitude. */
  if (SPI_execute_with_args(replay->statement, replay->n_values, replay->types, replay->values, NULL, false, 0) !=
      SPI_OK_INSERT)
    elog(ERROR, "could not replay: %s", SPI_result_code_string(SPI_result));
  replay->n = SPI_processed;
}

/* The start of the oldest day of events_sent; DT_NOEND when there is none. In SPI. */
static TimestampTz kept_since(void) {
  bool isnull = true;
  Datum first = 0;

  if (SPI_execute("SELECT min(to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC') "
                  "FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid "
                  "WHERE i.inhparent = 'outbox.events_sent'::regclass AND c.relname ~ '^events_sent_[0-9]{8}$'",
                  true, 1) == SPI_OK_SELECT &&
      SPI_processed == 1)
    first = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
  return isnull ? DT_NOEND : DatumGetTimestampTz(first);
}

static bool any_is_kept(void) {
  return SPI_execute("SELECT FROM outbox.events_sent LIMIT 1", true, 1) == SPI_OK_SELECT && SPI_processed == 1;
}

static void notice_missing(const Replay *replay) {
  TimestampTz since = DatumGetTimestampTz(replay->values[1]), first = kept_since();

  if (replay->n == 0 && !any_is_kept())
    ereport(NOTICE, (errmsg("no event is sent again: no delivered event is kept"),
                     errdetail("Events are deleted on delivery, or when outbox.retention is over."),
                     errhint("Keep those that are delivered from now on: ALTER SYSTEM SET outbox.retention = '7d'; "
                             "SELECT pg_reload_conf();")));
  else if (!TIMESTAMP_NOT_FINITE(since) && since < first)
    ereport(NOTICE,
            (errmsg("events delivered before %s are no longer kept", time_text(first)),
             errhint("outbox.retention and the option retention of a sink set how long delivered events are kept.")));
  else if (replay->n == 0)
    ereport(
        NOTICE,
        (errmsg("no event is sent again: none that is kept matches"),
         errdetail("since and until are compared with sent_at. Pending events and dead letters are not sent again."),
         errhint("SELECT sink, event_type, count(*), min(sent_at), max(sent_at) FROM outbox.events WHERE status "
                 "= 'SENT' GROUP BY 1, 2;")));
}

/* ---- what a destination does with old times ------------------------------------------------------------------ */

/* The sinks of which the current statement has told: SELECT outbox.redrive(id, sink) FROM ... asks once per row. */
static List *told_sinks = NIL;
static TimestampTz told_statement;

static bool told_before(Oid server) {
  if (told_statement != GetCurrentStatementStartTimestamp()) {
    list_free(told_sinks);
    told_sinks = NIL;
    told_statement = GetCurrentStatementStartTimestamp();
  }
  if (list_member_oid(told_sinks, server))
    return true;
  MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
  told_sinks = lappend_oid(told_sinks, server);
  MemoryContextSwitchTo(caller);
  return false;
}

/* With the times of their events, a destination may drop old events at once. In SPI. */
static void notice_old_timestamps(Oid server) {
  Oid type = OIDOID;
  Datum value = ObjectIdGetDatum(server);

  if (told_before(server) ||
      SPI_execute_with_args("SELECT a.detail, s.srvname FROM pg_foreign_server AS s, "
                            "outbox_internal.sink_advice(s.oid) AS a "
                            "WHERE s.oid = $1 AND a.topic = 'timestamp'",
                            1, &type, &value, NULL, true, 1) != SPI_OK_SELECT ||
      SPI_processed == 0)
    return;
  const char *detail = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
  const char *sink = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2);
  ereport(NOTICE, (errmsg("events of the sink \"%s\" are sent with the times at which they were enqueued", sink),
                   errdetail_internal("%s", detail), errhint("SELECT * FROM outbox.doctor();")));
}

SQL_FUNCTION(outbox_notice_old_timestamps) {
  SPI_connect();
  notice_old_timestamps(PG_GETARG_OID(0));
  SPI_finish();
  PG_RETURN_VOID();
}

/* ---- one event ------------------------------------------------------------------------------------------------ */

static bool has_row(const char *statement, const Replay *replay) {
  Oid types[] = {TEXTOID, UUIDOID};

  /* Not read-only, to see the rows that this statement has added. */
  return SPI_execute_with_args(statement, 2, types, const_cast<Datum *>(replay->values), NULL, false, 1) ==
             SPI_OK_SELECT &&
         SPI_processed == 1;
}

/* Warns instead of raising an error: in a SELECT over many events, one that cannot be sent again must not stop the
 * others. */
static void warn_not_sent_again(const Replay *replay, const char *sink) {
  const char *id = DatumGetCString(DirectFunctionCall1(uuid_out, replay->values[1]));

  if (has_row("SELECT FROM outbox.events_pending WHERE id = $2 AND sink = $1", replay))
    ereport(WARNING,
            (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("event %s is not sent again", id),
             errdetail("It is pending for the sink \"%s\".", sink),
             errhint("To have it tried at once: UPDATE outbox.events SET available_at = now() WHERE id = '%s' AND "
                     "status = 'PENDING';",
                     id)));
  else if (has_row("SELECT FROM outbox.events_failed WHERE id = $2 AND sink = $1", replay))
    ereport(WARNING, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("event %s is not sent again", id),
                      errdetail("It is a dead letter of the sink \"%s\".", sink),
                      errhint("SELECT outbox.redrive('%s', %s);", id, quote_literal_cstr(sink))));
  else
    ereport(WARNING, (errcode(ERRCODE_NO_DATA_FOUND), errmsg("event %s is not sent again", id),
                      errdetail("No delivered event with this id is kept."),
                      errhint("outbox.retention, or the option retention of a sink, says how long delivered events "
                              "are kept.")));
}

static void replay_one(Replay *replay, const char *sink) {
  event_insert_copies_by(insert_rows, replay);
  if (replay->n == 0)
    warn_not_sent_again(replay, sink);
}

/* ---- a span of time ------------------------------------------------------------------------------------------- */

/* The replay is one statement: it takes no lock that blocks others, and the worker reads the added rows like any
 * backlog. */
static void replay_span(Replay *replay) {
  const TimestampTz since = DatumGetTimestampTz(replay->values[1]), until = DatumGetTimestampTz(replay->values[2]);

  if (since > until)
    ereport(ERROR,
            (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("\"since\" must not be later than \"until\""),
             errdetail("since is %s, until is %s.", time_text(since), time_text(until)), errhint("Exchange them.")));
  event_insert_copies_by(insert_rows, replay);
  notice_missing(replay);
}

SQL_FUNCTION(outbox_replay) {
  PreventCommandDuringRecovery("outbox.replay()");
  PreventCommandIfReadOnly("outbox.replay()");
  check_arguments(fcinfo);
  const char *sink = text_to_cstring(PG_GETARG_TEXT_PP(SINK));
  hold_sink_names();
  const Oid server = check_sink(sink);
  Replay replay = {};

  OwnerScope scope = owner_enter();
  if (PG_ARGISNULL(EVENT)) {
    TimestampTz since = time_argument(fcinfo, SINCE, "since");
    TimestampTz until =
        PG_ARGISNULL(UNTIL) ? GetCurrentTransactionStartTimestamp() : time_argument(fcinfo, UNTIL, "until");
    replay = {
        REPLAY,
        4,
        {TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID},
        {PG_GETARG_DATUM(SINK), TimestampTzGetDatum(since), TimestampTzGetDatum(until), PG_GETARG_DATUM(EVENTS)},
        0};
    replay_span(&replay);
  } else {
    replay = {REPLAY_ONE, 2, {TEXTOID, UUIDOID}, {PG_GETARG_DATUM(SINK), PG_GETARG_DATUM(EVENT)}, 0};
    replay_one(&replay, sink);
  }
  if (replay.n > 0)
    notice_old_timestamps(server);
  owner_leave(scope);
  PG_RETURN_INT64((int64)replay.n);
}
