/*
 * event_check.cpp: a checker of the sink's kind builds the message without sending it. An event that it refuses would
 * become a dead letter later. A user's UPDATE of type, headers, key or sink is checked in the same way. Other changes
 * are not, so that an event which newer options refuse can still be postponed or moved.
 */
#include "server/enqueue/event_check.h"

extern "C" {
#include "datatype/timestamp.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"
}

#include "server/base/delivery_error.h"
#include "server/event/event_row.h"
#include "server/event/header_text.h"
#include "server/event/jsonb_text.h"

/* Kafka's limit for a topic's name, which usually contains the type. In characters. */
enum { MAX_TYPE_LENGTH = 249 };

static ob_text to_utf8(const char *data, size_t len) {
  char *converted = pg_server_to_any(data, (int)len, PG_UTF8);
  return {converted, converted == data ? len : strlen(converted)};
}

static ob_text column_text(const TriggerRow *row, EventColumn column) {
  if (row_isnull(row, column))
    return {NULL, 0};
  text *value = DatumGetTextPP(row_get(row, column));
  return to_utf8(VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value));
}

static bool has_line_break(const char *data, size_t len) {
  return memchr(data, '\r', len) != NULL || memchr(data, '\n', len) != NULL;
}

/* The column becomes a header, which must be one line. */
static void check_one_line(const TriggerRow *row, EventColumn column) {
  if (row_isnull(row, column))
    return;
  text *value = DatumGetTextPP(row_get(row, column));
  if (has_line_break(VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value)))
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                    errmsg("%s must not contain a line break", event_column_names[column]),
                    errdetail("It is sent as a header, which a carriage return or line feed would end."),
                    errhint("Remove the line break, or put the text into the payload.")));
}

static void check_type(const TriggerRow *row, EventColumn column, const char *example) {
  text *value = DatumGetTextPP(row_get(row, column));
  int length = pg_mbstrlen_with_len(VARDATA_ANY(value), (int)VARSIZE_ANY_EXHDR(value));

  if (length == 0)
    ereport(ERROR,
            (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must not be empty", event_column_names[column]),
             errdetail("Sinks route and name events by it."), errhint("Use a name such as %s.", example)));
  if (length > MAX_TYPE_LENGTH)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s is too long", event_column_names[column]),
                    errdetail("It has %d characters; at most %d are allowed.", length, MAX_TYPE_LENGTH),
                    errhint("Use a short name such as %s and put the rest into the payload.", example)));
  check_one_line(row, column);
}

[[noreturn]] static void refuse_header(const JsonbValue *name, const char *what) {
  ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("headers must be a flat JSON object"),
                  errdetail("Header \"%.*s\" is %s.", name->val.string.len, name->val.string.val, what),
                  errhint("Give each header a string, a number or a boolean; bytes as {\"base64\": \"AQID\"}.")));
  pg_unreachable();
}

static void check_header_name(const JsonbValue *name) {
  if (name->val.string.len == 0)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("a header has no name"),
                    errdetail("The object has the key \"\"."), errhint("Name the header, such as traceparent.")));
  if (has_line_break(name->val.string.val, name->val.string.len))
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("a header must not contain a line break"),
                    errdetail("A header's name has a carriage return or line feed."),
                    errhint("Remove the line break, or put the text into the payload.")));
}

static void check_header_value(const JsonbValue *name, const JsonbValue *value) {
  if (has_line_break(value->val.string.val, value->val.string.len))
    ereport(
        ERROR,
        (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("a header must not contain a line break"),
         errdetail("The value of header \"%.*s\" has a carriage return or line feed.", name->val.string.len,
                   name->val.string.val),
         errhint("Remove the line break, put the text into the payload, or write bytes as {\"base64\": \"AQID\"}.")));
}

/* Converts a header's value to text: JSON allows numbers and booleans too. */
static JsonbValue value_as_text(const JsonbValue *name, const JsonbValue *value) {
  JsonbValue out = *value;

  out.type = jbvString;
  if (value->type == jbvString)
    return out;
  if (value->type == jbvNull)
    refuse_header(name, "null");
  if (value->type == jbvBinary)
    refuse_header(name, JsonContainerIsArray(value->val.binary.data) ? "an array" : "an object");
  ob_text text = header_text(value);
  out.val.string.val = const_cast<char *>(text.data);
  out.val.string.len = (int)text.len;
  return out;
}

static ob_header binary_header(const JsonbValue *name, const JsonbValue *text) {
  char *bytes = (char *)palloc(text->val.string.len);
  int length = binary_header_decode(text, bytes);

  if (length < 0)
    ereport(ERROR,
            (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
             errmsg("value of header \"%.*s\" is not base64", name->val.string.len, name->val.string.val),
             errdetail("An object {\"base64\": \"...\"} stands for a header's bytes."),
             errhint("Write them as encode(bytes, 'base64') does, without line breaks and with the padding.")));
  return {to_utf8(name->val.string.val, name->val.string.len), {bytes, (size_t)length}, true};
}

/* Some ORMs write a missing value of a JSON column as JSON null. */
static bool is_json_null(Jsonb *json) {
  JsonbValue scalar;

  return JB_ROOT_IS_SCALAR(json) && JsonbExtractScalar(&json->root, &scalar) && scalar.type == jbvNull;
}

static void check_headers(TriggerRow *row, EventHeaders *headers) {
  headers->list = NULL;
  headers->n = 0;
  if (row_isnull(row, EV_HEADERS))
    return;

  Jsonb *given = DatumGetJsonbP(row_get(row, EV_HEADERS));
  if (is_json_null(given)) {
    row_set_null(row, EV_HEADERS);
    return;
  }
  if (!JB_ROOT_IS_OBJECT(given))
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("headers must be a flat JSON object"),
                    errdetail("The value is %s.", JB_ROOT_IS_SCALAR(given) ? "a scalar" : "an array"),
                    errhint("Write headers as '{\"name\": \"value\"}'.")));

  headers->list = palloc_array(ob_header, JB_ROOT_COUNT(given) + 1);
  JsonbIterator *iterator = JsonbIteratorInit(&given->root);
  OUTBOX_JSONB_STATE state = {};
  JsonbValue name, value, bytes;
  bool all_text = true;

  (void)JsonbIteratorNext(&iterator, &name, true);
  (void)outbox_push_jsonb(&state, WJB_BEGIN_OBJECT, NULL);
  while (JsonbIteratorNext(&iterator, &name, true) == WJB_KEY) {
    (void)JsonbIteratorNext(&iterator, &value, true);
    (void)outbox_push_jsonb(&state, WJB_KEY, &name);
    if (binary_header_text(&value, &bytes)) {
      check_header_name(&name);
      (void)outbox_push_jsonb(&state, WJB_VALUE, &value);
      headers->list[headers->n++] = binary_header(&name, &bytes);
      continue;
    }
    JsonbValue as_text = value_as_text(&name, &value);
    check_header_name(&name);
    check_header_value(&name, &as_text);
    all_text = all_text && value.type == jbvString;
    (void)outbox_push_jsonb(&state, WJB_VALUE, &as_text);
    headers->list[headers->n++] = {to_utf8(name.val.string.val, name.val.string.len),
                                   to_utf8(as_text.val.string.val, as_text.val.string.len), false};
  }
  JsonbValue *object = outbox_push_jsonb(&state, WJB_END_OBJECT, NULL);
  if (!all_text)
    row_set(row, EV_HEADERS, JsonbPGetDatum(JsonbValueToJsonb(object)));
}

void event_check_payload(TriggerRow *row) {
  if (row_isnull(row, EV_PAYLOAD_BYTES) || row_isnull(row, EV_PAYLOAD))
    return;
  Jsonb *payload = DatumGetJsonbP(row_get(row, EV_PAYLOAD));
  if (!JB_ROOT_IS_OBJECT(payload) || JB_ROOT_COUNT(payload) != 0)
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("an event has one payload"),
                    errdetail("Both payload and payload_bytes are given."), errhint("Leave one of them out.")));
  row_set_null(row, EV_PAYLOAD);
}

/* Message formats write created_at with a year of four digits. */
void event_check_created_at(const TriggerRow *row) {
  static const TimestampTz FIRST = ((TimestampTz)1721426 - POSTGRES_EPOCH_JDATE) * USECS_PER_DAY; /* 0001-01-01 */
  static const TimestampTz END = ((TimestampTz)5373485 - POSTGRES_EPOCH_JDATE) * USECS_PER_DAY;   /* 10000-01-01 */

  if (row_isnull(row, EV_CREATED_AT))
    return;
  TimestampTz time = DatumGetTimestampTz(row_get(row, EV_CREATED_AT));
  if (time < FIRST || time >= END)
    ereport(
        ERROR,
        (errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE), errmsg("created_at is out of range"),
         errdetail("Consumers get it as a date of the years 1 to 9999; this one is %s.", timestamptz_to_str(time)),
         errhint("Leave it out to have the start of the transaction. To deliver later, set available_at.")));
}

static void column_context(void *column) {
  errcontext("conversion of column %s of the event to UTF-8", *(const char *const *)column);
}

/* String by string: the text of the whole can be thousands of times larger. */
static void check_json_encoding(Jsonb *json) {
  JsonbIterator *walk = JsonbIteratorInit(&json->root);
  JsonbIteratorToken token;
  JsonbValue value;

  while ((token = JsonbIteratorNext(&walk, &value, false)) != WJB_DONE)
    if ((token == WJB_KEY || token == WJB_VALUE || token == WJB_ELEM) && value.type == jbvString) {
      const ob_text text = to_utf8(value.val.string.val, value.val.string.len);
      if (text.data != value.val.string.val)
        pfree(const_cast<char *>(text.data));
    }
}

void event_check_encoding(const TriggerRow *before, const TriggerRow *row) {
  static const EventColumn texts[] = {EV_AGGREGATE_TYPE, EV_AGGREGATE_ID, EV_EVENT_TYPE, EV_PARTITION_KEY,
                                      EV_DEDUP_KEY,      EV_CONTENT_TYPE, EV_HEADERS,    EV_PAYLOAD};
  const char *name;
  ErrorContextCallback context = {error_context_stack, column_context, &name};

  if (GetDatabaseEncoding() == PG_UTF8)
    return;
  error_context_stack = &context;
  for (EventColumn column : texts) {
    name = event_column_names[column];
    if (before && row_same(before, row, column))
      continue;
    if (event_column_types[column] == TEXTOID) {
      (void)column_text(row, column);
    } else if (!row_isnull(row, column)) {
      check_json_encoding(DatumGetJsonbP(row_get(row, column)));
    }
  }
  error_context_stack = context.previous;
}

void event_check(TriggerRow *row, EventHeaders *headers) {
  event_check_created_at(row);
  check_type(row, EV_AGGREGATE_TYPE, "Order");
  check_type(row, EV_EVENT_TYPE, "order.created");
  check_one_line(row, EV_CONTENT_TYPE);
  check_one_line(row, EV_DEDUP_KEY);
  check_headers(row, headers);
  event_check_payload(row);
}

static const EventColumn measured_texts[] = {EV_AGGREGATE_TYPE, EV_AGGREGATE_ID,  EV_EVENT_TYPE,
                                             EV_CONTENT_TYPE,   EV_PARTITION_KEY, EV_DEDUP_KEY};

static const struct varlena *column_value(const TriggerRow *row, EventColumn column) {
  return row_isnull(row, column) ? NULL : (const struct varlena *)DatumGetPointer(row_get(row, column));
}

static SentColumns sent_columns(const TriggerRow *row) {
  SentColumns sent = {
      column_value(row, EV_PAYLOAD), column_value(row, EV_PAYLOAD_BYTES), column_value(row, EV_HEADERS), {}};

  static_assert(lengthof(sent.texts) == lengthof(measured_texts));
  for (size_t i = 0; i < lengthof(measured_texts); i++)
    sent.texts[i] = column_value(row, measured_texts[i]);
  return sent;
}

/* Does the UPDATE give the column a value of its own? It may equal the former one. */
static bool is_replaced(const TriggerRow *before, const TriggerRow *row, EventColumn column) {
  const struct varlena *was = column_value(before, column), *is = column_value(row, column);

  return is && !(was && VARSIZE_ANY(was) == VARSIZE_ANY(is) && memcmp(was, is, VARSIZE_ANY(is)) == 0);
}

bool event_payload_replaced(const TriggerRow *before, const TriggerRow *after) {
  return is_replaced(before, after, EV_PAYLOAD) || is_replaced(before, after, EV_PAYLOAD_BYTES);
}

void event_check_size(const TriggerRow *before, const TriggerRow *row, EventSize *size) {
  SentColumns sent = sent_columns(row);
  ob_error error;

  if (before) {
    if (!is_replaced(before, row, EV_PAYLOAD))
      sent.payload = NULL;
    if (!is_replaced(before, row, EV_PAYLOAD_BYTES))
      sent.payload_bytes = NULL;
    bool texts = is_replaced(before, row, EV_HEADERS);
    for (EventColumn column : measured_texts)
      texts = texts || is_replaced(before, row, column);
    if (!texts) {
      sent.headers = NULL;
      memset(sent.texts, 0, sizeof sent.texts);
    }
  }
  event_measure(&sent, OB_LARGEST_PAYLOAD, size);
  if (size->fit != EVENT_FITS) {
    event_measure_exactly(&sent, size);
    event_size_error(size, OB_LARGEST_PAYLOAD, &error);
    delivery_error(&error);
  }
}

/* Most sinks check only the payload's length. Its text is made for a sink that checks the text, and where sent text
 * may be longer than it is here. */
static ob_text payload_of(const TriggerRow *row, size_t length, bool need_text) {
  StringInfoData text;

  if (row_isnull(row, EV_PAYLOAD) && row_isnull(row, EV_PAYLOAD_BYTES))
    return {NULL, 0};
  if (row_isnull(row, EV_PAYLOAD) || !need_text)
    return {"", length};
  initStringInfo(&text);
  (void)jsonb_append_text(&text, &DatumGetJsonbP(row_get(row, EV_PAYLOAD))->root, length);
  return to_utf8(text.data, text.len);
}

/* The kind's own limit comes first, because its message says more. A kind that reads the text has it only when the
 * payload is small enough. */
static bool check_for_sink(const ob_event *event, RouteSink *sink, bool is_new, ob_error *error) {
  const ob_checker *checker = route_checker(sink, KIND_MESSAGES);
  const size_t most = route_max_payload(sink);
  const bool fits = event->payload.len <= most;

  if (checker && (fits || checker->max_payload > 0) && !checker->kind->checker_check(checker, event, is_new, error))
    return false;
  if (!fits) {
    const EventSize size = {EVENT_PAYLOAD_TOO_LARGE, true, event->payload.len, 0};
    event_size_error(&size, most, error);
  }
  return fits;
}

void event_check_sinks(const TriggerRow *row, const EventHeaders *headers, const EventSize *size,
                       RouteSink *const *sinks, int n, bool is_new) {
  ob_event event;
  ob_error error, first_too_large;
  const RouteSink *too_large_for = NULL;
  bool need_text = false, fits_somewhere = false;

  memset(&event, 0, sizeof event);
  event.created_at_us = event_unix_us(DatumGetTimestampTz(row_get(row, EV_CREATED_AT)));
  memcpy(event.id, DatumGetUUIDP(row_get(row, EV_ID))->data, sizeof event.id);
  event.aggregate_type = column_text(row, EV_AGGREGATE_TYPE);
  event.aggregate_id = column_text(row, EV_AGGREGATE_ID);
  event.event_type = column_text(row, EV_EVENT_TYPE);
  event.key = column_text(row, EV_PARTITION_KEY);
  event.dedup_key = column_text(row, EV_DEDUP_KEY);
  event.content_type = column_text(row, EV_CONTENT_TYPE);
  event.payload_is_bytes = !row_isnull(row, EV_PAYLOAD_BYTES);
  event.has_seq = !row_isnull(row, EV_SEQ);
  event.seq = event.has_seq ? DatumGetInt64(row_get(row, EV_SEQ)) : 0;
  event.attempt = 1;
  event.headers = headers->list;
  event.n_headers = headers->n;
  for (int i = 0; i < n && !need_text; i++) {
    const ob_checker *checker = route_checker(sinks[i], KIND_MESSAGES);
    need_text = size->payload <= route_max_payload(sinks[i]) &&
                (GetDatabaseEncoding() != PG_UTF8 || (checker && checker->max_payload == 0));
  }
  event.payload = payload_of(row, size->payload, need_text);

  for (int i = 0; i < n; i++) {
    if (check_for_sink(&event, sinks[i], is_new, &error)) {
      fits_somewhere = true;
    } else if (error.kind != OB_TOO_LARGE) {
      delivery_error_of_sink(&error, sinks[i]->name);
    } else if (too_large_for == NULL) {
      too_large_for = sinks[i];
      first_too_large = error;
    }
  }
  if (!fits_somewhere && too_large_for)
    delivery_error_of_sink(&first_too_large, too_large_for->name);
  for (int i = 0; too_large_for && is_new && i < n; i++)
    if (!check_for_sink(&event, sinks[i], is_new, &error))
      delivery_warn_too_large(&error, sinks[i]->name);
}
