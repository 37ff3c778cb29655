/*
 * update_trigger.cpp: users may change events by plain SQL at any time. A changed pending event may be behind the
 * worker's cursor, or may have blocked its key: its position goes to outbox_internal.rescan_queue, and the worker
 * reads it again. The columns and WHEN clauses of the triggers exclude all other changes.
 */
#include "server/enqueue/update_trigger.h"

extern "C" {
#include "access/htup_details.h"
#include "access/xact.h"
#include "commands/trigger.h"
#include "replication/logicalworker.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
}

#include "server/base/origin.h"
#include "server/base/own_change.h"
#include "server/base/sql_function.h"
#include "server/catalog/route.h"
#include "server/enqueue/dedup.h"
#include "server/enqueue/event_check.h"
#include "server/storage/owner_sql.h"

/* The row that an UPDATE of its status moves to another partition next; 0 = none. Valid within the same statement and
 * subtransaction. */
static int64 moving_position;
/* A statement that failed before it moved the row must not allow a later INSERT. */
static TimestampTz moving_statement;
static SubTransactionId moving_subtransaction;

static void note_move(int64 position) {
  moving_position = position;
  moving_statement = GetCurrentStatementStartTimestamp();
  moving_subtransaction = GetCurrentSubTransactionId();
}

bool is_partition_move(int64 position) {
  bool moves = moving_position == position && position != 0 &&
               moving_statement == GetCurrentStatementStartTimestamp() &&
               moving_subtransaction == GetCurrentSubTransactionId();
  moving_position = 0;
  return moves;
}

bool event_is_manual(const TriggerRow *row) {
  const RouteSink *sink = row_isnull(row, EV_SINK) ? NULL : route_find(TextDatumGetCString(row_get(row, EV_SINK)));

  return sink && sink->is_manual;
}

static TriggerData *check_call(FunctionCallInfo fcinfo, bool good, const char *name, const char *kind) {
  if (!good || !TRIGGER_FIRED_FOR_ROW(((TriggerData *)fcinfo->context)->tg_event))
    ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
                    errmsg("function \"%s\" must be called by %s row trigger", name, kind)));
  return (TriggerData *)fcinfo->context;
}

static bool is_ours(const TriggerRow *row) {
  return DatumGetInt64(row_get(row, EV_ORIGIN)) == origin_here();
}

/* Did a subscription replicate this change? It is not checked, since the publisher's sinks may not exist here, and a
 * delivered event that the publisher deletes keeps its dedup key. */
static bool is_replicated(const TriggerRow *before) {
  return IsLogicalWorker() && !is_ours(before);
}

/* For outbox.story(). */
static void keep_redrive(const TriggerRow *letter) {
  static Statement keep = make_statement<UUIDOID, INT8OID, TEXTOID, INT4OID, TIMESTAMPTZOID, TEXTOID, TEXTOID>(
      "SELECT outbox_internal.keep_redrive($1, $2, $3, $4, $5, $6, $7)");
  static const EventColumn columns[] = {EV_ID,         EV_POSITION,     EV_SINK, EV_ATTEMPTS, EV_LAST_ATTEMPT_AT,
                                        EV_LAST_ERROR, EV_PARTITION_KEY};
  Datum values[lengthof(columns)];
  char nulls[lengthof(columns)];

  for (size_t i = 0; i < lengthof(columns); i++) {
    nulls[i] = row_isnull(letter, columns[i]) ? 'n' : ' ';
    values[i] = row_get(letter, columns[i]);
  }
  OwnerScope scope = owner_enter();
  owner_execute(&keep, values, nulls);
  owner_leave(scope);
}

/* A user who sets a dead letter to PENDING wants it sent, even after later events of its key: the same as
 * outbox.redrive() with force. It begins with no attempts and no time, unless the UPDATE gives others. */
static void redrive_by_update(const TriggerRow *before, TriggerRow *after) {
  if (!row_has_status(before, "FAILED") || !row_has_status(after, "PENDING")) {
    row_set_null(after, EV_REDRIVE_LATE);
    return;
  }
  keep_redrive(before);
  row_set(after, EV_REDRIVE_LATE, BoolGetDatum(true));
  row_set_null(after, EV_LAST_ATTEMPT_AT);
  if (row_same(before, after, EV_ATTEMPTS))
    row_set(after, EV_ATTEMPTS, Int32GetDatum(0));
  if (row_same(before, after, EV_AVAILABLE_AT))
    row_set_null(after, EV_AVAILABLE_AT);
}

/* An empty key means that the event has none, as when it is enqueued. */
static void remove_empty_key(const TriggerRow *before, TriggerRow *after) {
  if (!row_isnull(after, EV_PARTITION_KEY) && !row_same(before, after, EV_PARTITION_KEY) &&
      VARSIZE_ANY_EXHDR(PG_DETOAST_DATUM_PACKED(row_get(after, EV_PARTITION_KEY))) == 0)
    row_set_null(after, EV_PARTITION_KEY);
}

/* The time of the last attempt says that the event is failing. A user who sets only the number starts the event anew
 * with 0, and else has tried it. */
static void follow_attempts(const TriggerRow *before, TriggerRow *after) {
  if (row_same(before, after, EV_ATTEMPTS) || !row_same(before, after, EV_LAST_ATTEMPT_AT))
    return;
  if (DatumGetInt32(row_get(after, EV_ATTEMPTS)) > 0)
    row_default(after, EV_LAST_ATTEMPT_AT, TimestampTzGetDatum(GetCurrentTransactionStartTimestamp()));
  else
    row_set_null(after, EV_LAST_ATTEMPT_AT);
}

/* Only the extension sets these columns. A user's change is undone without an error, because ORMs write back all
 * columns that they have read.
 */
static void keep_extension_columns(const TriggerRow *before, TriggerRow *after) {
  static const EventColumn columns[] = {EV_POSITION,   EV_XACT,         EV_ORIGIN,       EV_APPLICATION,
                                        EV_BLOCKED_BY, EV_OVERTAKEN_BY, EV_REDRIVE_LATE, EV_ACKNOWLEDGEMENT};

  if (IsLogicalWorker() || is_owner(GetUserId()))
    return;
  for (EventColumn column : columns) {
    if (column == EV_ORIGIN && is_ours(after)) /* outbox.adopt() by a role that may call it */
      continue;
    if (row_isnull(before, column))
      row_set_null(after, column);
    else
      row_set(after, column, row_get(before, column));
  }
}

/* Does the UPDATE leave all checked columns alone, as outbox.adopt() does? The event was checked when it was
 * enqueued. */
static bool only_unchecked_columns_change(const TriggerRow *before, const TriggerRow *after) {
  static const EventColumn checked[] = {EV_STATUS,  EV_SINK,         EV_SENT_AT,   EV_AGGREGATE_TYPE, EV_EVENT_TYPE,
                                        EV_HEADERS, EV_CONTENT_TYPE, EV_DEDUP_KEY, EV_PARTITION_KEY};

  for (EventColumn column : checked)
    if (!row_same(before, after, column))
      return false;
  return !event_payload_replaced(before, after);
}

/* Does the UPDATE give a payload beside the one that the event has, or two of them? Compares no values: a TOAST value
 * may be damaged. */
static bool adds_payload(const TriggerRow *before, const TriggerRow *after) {
  return !row_isnull(after, EV_PAYLOAD) && !row_isnull(after, EV_PAYLOAD_BYTES) &&
         (row_isnull(before, EV_PAYLOAD) || row_isnull(before, EV_PAYLOAD_BYTES));
}

/* Users' programs that know no status set only the time: UPDATE ... SET sent_at = now(). */
static void mark_sent_by_time(const TriggerRow *before, TriggerRow *after) {
  if (row_isnull(before, EV_SENT_AT) && !row_isnull(after, EV_SENT_AT) && row_same(before, after, EV_STATUS))
    row_set(after, EV_STATUS, CStringGetTextDatum("SENT"));
}

/* Raises an error for a change that would make the event a dead letter of its sink. Other changes must stay possible,
 * also for an event that newer options of the sink refuse. */
static void check_for_sink(const TriggerRow *before, const TriggerRow *after, const EventHeaders *headers) {
  static const EventColumn sent[] = {EV_SINK,    EV_AGGREGATE_TYPE, EV_EVENT_TYPE,
                                     EV_HEADERS, EV_CONTENT_TYPE,   EV_PARTITION_KEY};
  bool same = !event_payload_replaced(before, after);
  EventSize size;

  for (EventColumn column : sent)
    same = same && row_same(before, after, column);
  if (same || row_isnull(after, EV_SINK) || row_isnull(after, EV_ID) || row_isnull(after, EV_CREATED_AT) ||
      row_has_status(after, "SENT"))
    return;
  if (RouteSink *sink = route_find(TextDatumGetCString(row_get(after, EV_SINK)))) {
    event_check_size(NULL, after, &size);
    event_check_sinks(after, headers, &size, &sink, 1, false);
  }
}

SQL_FUNCTION(outbox_events_before_update) {
  bool good = CALLED_AS_TRIGGER(fcinfo) && TRIGGER_FIRED_BEFORE(((TriggerData *)fcinfo->context)->tg_event) &&
              TRIGGER_FIRED_BY_UPDATE(((TriggerData *)fcinfo->context)->tg_event);
  TriggerData *trigger = check_call(fcinfo, good, "events_before_update", "a BEFORE UPDATE");
  TriggerRow before, after;
  EventHeaders headers;
  EventSize size;

  if (is_own_change())
    return PointerGetDatum(trigger->tg_newtuple);
  trigger_row_open(&before, trigger->tg_relation, trigger->tg_trigtuple);
  trigger_row_open(&after, trigger->tg_relation, trigger->tg_newtuple);

  keep_extension_columns(&before, &after);
  if (!is_replicated(&before)) {
    remove_empty_key(&before, &after);
    follow_attempts(&before, &after);
  }
  if (row_isnull(&after, EV_STATUS))
    row_set(&after, EV_STATUS, CStringGetTextDatum("PENDING"));
  mark_sent_by_time(&before, &after);
  if (!row_same(&before, &after, EV_STATUS)) {
    note_move(row_isnull(&after, EV_POSITION) ? 0 : DatumGetInt64(row_get(&after, EV_POSITION)));
    if (row_has_status(&after, "SENT")) /* sent_at decides on the daily partition */
      row_default(&after, EV_SENT_AT, TimestampTzGetDatum(GetCurrentTransactionStartTimestamp()));
    else
      row_set_null(&after, EV_SENT_AT);
    redrive_by_update(&before, &after);
  }
  if (!row_isnull(&after, EV_OVERTAKEN_BY) &&
      (!row_same(&before, &after, EV_SINK) || !row_same(&before, &after, EV_PARTITION_KEY)))
    row_set_null(&after, EV_OVERTAKEN_BY); /* the order of another key or sink */
  if (event_is_manual(&after))             /* no worker would remove the mark */
    row_set_null(&after, EV_BLOCKED_BY);
  if (!is_replicated(&before)) {
    event_check_size(&before, &after, &size);
    event_check_encoding(&before, &after);
    if (!row_same(&before, &after, EV_CREATED_AT))
      event_check_created_at(&after);
    if (adds_payload(&before, &after))
      event_check_payload(&after);
  }
  if (is_replicated(&before) || only_unchecked_columns_change(&before, &after))
    return PointerGetDatum(heap_form_tuple(after.desc, after.values, after.isnull));
  if (!row_isnull(&after, EV_SINK) && !row_same(&before, &after, EV_SINK))
    route_require(TextDatumGetCString(row_get(&after, EV_SINK)), GetUserId());
  if (!row_isnull(&after, EV_AGGREGATE_TYPE) && !row_isnull(&after, EV_EVENT_TYPE)) {
    event_check(&after, &headers);
    check_for_sink(&before, &after, &headers);
  }
  return PointerGetDatum(heap_form_tuple(after.desc, after.values, after.isnull));
}

SQL_FUNCTION(outbox_events_after_update) {
  bool good = CALLED_AS_TRIGGER(fcinfo) && TRIGGER_FIRED_AFTER(((TriggerData *)fcinfo->context)->tg_event) &&
              TRIGGER_FIRED_BY_UPDATE(((TriggerData *)fcinfo->context)->tg_event);
  TriggerData *trigger = check_call(fcinfo, good, "events_after_update", "an AFTER UPDATE");
  TriggerRow before, row;

  if (is_own_change())
    return PointerGetDatum(NULL);
  trigger_row_open(&before, trigger->tg_relation, trigger->tg_trigtuple);
  trigger_row_open(&row, trigger->tg_relation, trigger->tg_newtuple);
  /* Dead letters too: one may block its key. */
  if (!row_has_status(&row, "SENT") && (is_ours(&before) || is_ours(&row)) &&
      !(event_is_manual(&before) && event_is_manual(&row)))
    queue_rescan(DatumGetInt64(row_get(&row, EV_POSITION)));
  return PointerGetDatum(NULL);
}

SQL_FUNCTION(outbox_events_after_delete) {
  bool good = CALLED_AS_TRIGGER(fcinfo) && TRIGGER_FIRED_AFTER(((TriggerData *)fcinfo->context)->tg_event) &&
              TRIGGER_FIRED_BY_DELETE(((TriggerData *)fcinfo->context)->tg_event);
  TriggerData *trigger = check_call(fcinfo, good, "events_after_delete", "an AFTER DELETE");
  TriggerRow row;

  if (is_own_change())
    return PointerGetDatum(NULL);
  trigger_row_open(&row, trigger->tg_relation, trigger->tg_trigtuple);
  if (is_replicated(&row))
    return PointerGetDatum(NULL);
  int64 position = DatumGetInt64(row_get(&row, EV_POSITION));
  const bool has_worker = !event_is_manual(&row);
  if (row_has_status(&row, "FAILED") && is_ours(&row) && has_worker)
    queue_rescan(position); /* its key may have been blocked by it */
  if (!row_has_status(&row, "PENDING"))
    return PointerGetDatum(NULL);
  if (!row_isnull(&row, EV_LAST_ATTEMPT_AT) && has_worker)
    queue_rescan(position); /* its key was blocked by it */
  if (!row_isnull(&row, EV_DEDUP_KEY))
    dedup_release(row_get(&row, EV_DEDUP_KEY), row_get(&row, EV_ID), position);
  return PointerGetDatum(NULL);
}
