/*
 * event_row.cpp: a round's events are copied into memory blocks that the next round uses again. This takes 12 % of
 * the main thread's time; 19 % with fresh pages for every round.
 */
#include "server/event/event_row.h"

#include <span>

#include "server/event/event_size.h"
#include "server/event/header_text.h"
#include "server/event/jsonb_text.h"
#include "server/event/key_hash.h"
#include "server/event/unreadable.h"

extern "C" {
#include "access/detoast.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/uuid.h"
}

/* Indexes in EVENT_ROW_COLUMNS. */
enum {
  C_CTID,
  C_XMIN,
  C_POSITION,
  C_SINK,
  C_KEY,
  C_AVAILABLE_AT,
  C_ATTEMPTS,
  C_BLOCKED_BY,
  C_ORIGIN,
  C_ID,
  C_AGGREGATE_TYPE,
  C_AGGREGATE_ID,
  C_EVENT_TYPE,
  C_PAYLOAD,
  C_PAYLOAD_BYTES,
  C_CONTENT_TYPE,
  C_HEADERS,
  C_CREATED_AT,
  C_DEDUP_KEY,
  C_REDRIVE_LATE,
  C_OVERTAKEN_BY,
  C_SEQ,
  C_LAST_ATTEMPT_AT,
  C_COLUMNS
};

static_assert(C_COLUMNS == EVENT_ROW_N_COLUMNS);

void event_row_read(TupleTableSlot *tuple, EventRow *row) {
  const Datum *values = tuple->tts_values;
  const bool *nulls = tuple->tts_isnull;

  row->ctid = *(ItemPointer)DatumGetPointer(values[C_CTID]);
  row->xmin = DatumGetTransactionId(values[C_XMIN]);
  row->position = DatumGetInt64(values[C_POSITION]);
  const UnreadableRow *unreadable = unreadable_find(row->position, row->xmin);
  const bool has_routing = unreadable == NULL || unreadable->part != PART_KEY;
  unreadable_begin(row->position, row->xmin, PART_KEY);
  row->sink = NULL;
  row->sink_length = 0;
  if (has_routing && !nulls[C_SINK]) {
    text *sink = DatumGetTextPP(values[C_SINK]);
    row->sink = VARDATA_ANY(sink);
    row->sink_length = VARSIZE_ANY_EXHDR(sink);
  }
  row->key_hash = 0;
  if (has_routing && !nulls[C_KEY]) {
    text *key = DatumGetTextPP(values[C_KEY]);
    row->key_hash = key_hash_of(VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
  }
  unreadable_done();
  row->available_at = nulls[C_AVAILABLE_AT] ? DT_NOBEGIN : DatumGetTimestampTz(values[C_AVAILABLE_AT]);
  /* The table's owner may have written any number. `attempts + 1` must not overflow. */
  row->attempts = nulls[C_ATTEMPTS] ? 0 : Min(Max(DatumGetInt32(values[C_ATTEMPTS]), 0), PG_INT32_MAX - 1);
  row->failed_at = nulls[C_LAST_ATTEMPT_AT] ? DT_NOEND : DatumGetTimestampTz(values[C_LAST_ATTEMPT_AT]);
  row->blocked_by = nulls[C_BLOCKED_BY] ? 0 : DatumGetInt64(values[C_BLOCKED_BY]);
  row->redrive = nulls[C_REDRIVE_LATE]                  ? NOT_REDRIVEN
                 : DatumGetBool(values[C_REDRIVE_LATE]) ? REDRIVEN_LATE
                                                        : REDRIVEN_IN_ORDER;
  row->overtaken_by = nulls[C_OVERTAKEN_BY] ? 0 : DatumGetInt64(values[C_OVERTAKEN_BY]);
  /* A row that cannot be read counts as without origin. */
  row->origin = !has_routing || nulls[C_ORIGIN] ? 0 : DatumGetInt64(values[C_ORIGIN]);
  row->created_at = nulls[C_CREATED_AT] ? 0 : DatumGetTimestampTz(values[C_CREATED_AT]);
  row->tuple = tuple;
}

char *event_row_aggregate_type(const EventRow *row) {
  return TextDatumGetCString(row->tuple->tts_values[C_AGGREGATE_TYPE]);
}

char *event_row_event_type(const EventRow *row) {
  return TextDatumGetCString(row->tuple->tts_values[C_EVENT_TYPE]);
}

ob_header *event_row_headers(const EventRow *row, size_t *n) {
  return header_list(row->tuple->tts_isnull[C_HEADERS] ? NULL : DatumGetJsonbP(row->tuple->tts_values[C_HEADERS]), n);
}

/* The texts of a round's events are packed into blocks: a palloc() and pfree() for each text cost more. */
static MemoryContext round_context = NULL;
static char *block_free = NULL, *block_end = NULL;

void event_rows_begin(MemoryContext round) {
  round_context = round;
  block_free = block_end = NULL;
}

static char *take_bytes(size_t length) {
  static const size_t BLOCK = 8192; /* the largest block that a context keeps at its reset */

  Assert(round_context != NULL); /* event_rows_begin() was called */
  if (length > (size_t)(block_end - block_free)) {
    if (length > BLOCK / 4)
      return (char *)MemoryContextAllocHuge(round_context, length);
    block_free = (char *)MemoryContextAlloc(round_context, BLOCK);
    block_end = block_free + BLOCK;
  }
  char *bytes = block_free;
  block_free += length;
  return bytes;
}

static ob_text copy_bytes(const char *data, size_t length) {
  char *bytes = take_bytes(length);

  memcpy(bytes, data, length);
  return {bytes, length};
}

/* Events are sent in UTF-8, whatever the database's encoding. */
static ob_text copy_text(const char *data, int length) {
  if (GetDatabaseEncoding() == PG_UTF8)
    return copy_bytes(data, length);
  char *utf8 = pg_server_to_any(data, length, PG_UTF8);
  if (utf8 == data)
    return copy_bytes(data, length);
  ob_text copy = copy_bytes(utf8, strlen(utf8));
  pfree(utf8);
  return copy;
}

static void free_detoasted(const EventRow *row, int column, void *value) {
  if ((Pointer)value != DatumGetPointer(row->tuple->tts_values[column]))
    pfree(value); /* otherwise the round keeps two copies of each large value */
}

static ob_text copy_varlena(const EventRow *row, int column) {
  if (row->tuple->tts_isnull[column])
    return {NULL, 0};
  text *value = DatumGetTextPP(row->tuple->tts_values[column]);
  ob_text copy = column == C_PAYLOAD_BYTES ? copy_bytes(VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value))
                                           : copy_text(VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value));
  free_detoasted(row, column, value);
  return copy;
}

/* Copies the text of a payload whose stored size is small, in one walk. Returns false if the text is not small. */
static bool copy_small_json(Jsonb *json, size_t most, EventSize *size, ob_text *copy) {
  static const size_t SMALL = 64 * 1024;
  static StringInfoData text = {};

  if (VARSIZE(json) > SMALL)
    return false;
  if (text.data == NULL) {
    MemoryContext previous = MemoryContextSwitchTo(TopMemoryContext);
    initStringInfo(&text);
    MemoryContextSwitchTo(previous);
  }
  resetStringInfo(&text);
  const JsonbFit fit = jsonb_append_text(&text, &json->root, Min(most, SMALL));
  if (fit == JSONB_TOO_LARGE)
    return false;
  if (fit == JSONB_TOO_DEEP)
    size->fit = EVENT_TOO_DEEP;
  else
    *copy = copy_text(text.data, text.len);
  return true;
}

/* Writes a large text to where it stays in a UTF-8 database. */
static ob_text copy_large_json(Jsonb *json, size_t length) {
  static const size_t SPARE = 8192; /* more than what jsonb_append_text() makes room for at once */
  StringInfoData text = {(char *)MemoryContextAllocHuge(round_context, length + SPARE), 0, (int)(length + SPARE), 0};

  (void)jsonb_append_text(&text, &json->root, length);
  if (GetDatabaseEncoding() == PG_UTF8)
    return {text.data, (size_t)text.len};
  ob_text copy = copy_text(text.data, text.len);
  pfree(text.data);
  return copy;
}

static const struct varlena *stored(const EventRow *row, int column) {
  return row->tuple->tts_isnull[column] ? NULL
                                        : (const struct varlena *)DatumGetPointer(row->tuple->tts_values[column]);
}

static void read_json(const EventRow *row, size_t most, EventSize *size, ob_event *event) {
  const struct varlena *value = stored(row, C_PAYLOAD);

  if (!payload_may_fit(value, false, most, size))
    return;
  Jsonb *json = DatumGetJsonbP(PointerGetDatum(value));
  if (!copy_small_json(json, most, size, &event->payload)) {
    json_measure(json, most, size);
    if (size->fit == EVENT_FITS)
      event->payload = copy_large_json(json, size->payload);
  }
  free_detoasted(row, C_PAYLOAD, json);
  if (event->payload.len > most) { /* more bytes in UTF-8 */
    size->fit = EVENT_PAYLOAD_TOO_LARGE;
    size->payload = event->payload.len;
  }
}

static void read_payload(const EventRow *row, size_t most, EventSize *size, ob_event *event) {
  const struct varlena *bytes = stored(row, C_PAYLOAD_BYTES);

  if (bytes == NULL) {
    if (!row->tuple->tts_isnull[C_PAYLOAD])
      read_json(row, most, size, event);
    return;
  }
  event->payload_is_bytes = true;
  if (payload_may_fit(bytes, true, most, size))
    event->payload = copy_varlena(row, C_PAYLOAD_BYTES);
}

static ob_text binary_value(const JsonbValue *value) {
  JsonbValue text;
  if (!binary_header_text(value, &text))
    return {take_bytes(0), 0};
  char *bytes = take_bytes(text.val.string.len);
  return {bytes, (size_t)Max(binary_header_decode(&text, bytes), 0)};
}

static ob_text header_value(const JsonbValue *value) {
  if (value->type == jbvBinary)
    return binary_value(value);
  ob_text text = header_text(value);
  return copy_text(text.data ? text.data : "", (int)text.len);
}

static void read_headers(Jsonb *headers, ob_event *event) {
  if (headers == NULL || !JB_ROOT_IS_OBJECT(headers) || JB_ROOT_COUNT(headers) == 0)
    return;
  ob_header *list = (ob_header *)MemoryContextAlloc(round_context, sizeof(ob_header) * JB_ROOT_COUNT(headers));
  event->n_headers = headers_read(headers, list, header_value);
  event->headers = list;
}

/* The names, keys and headers. */
static void read_texts(const EventRow *row, EventSize *size, ob_event *event) {
  const SentColumns sent = {NULL,
                            NULL,
                            NULL,
                            {stored(row, C_AGGREGATE_TYPE), stored(row, C_AGGREGATE_ID), stored(row, C_EVENT_TYPE),
                             stored(row, C_CONTENT_TYPE), stored(row, C_KEY), stored(row, C_DEDUP_KEY)}};
  Jsonb *headers = row->tuple->tts_isnull[C_HEADERS] ? NULL : DatumGetJsonbP(row->tuple->tts_values[C_HEADERS]);

  texts_measure(&sent, headers, size);
  if (size->fit != EVENT_FITS)
    return;
  event->aggregate_type = copy_varlena(row, C_AGGREGATE_TYPE);
  event->aggregate_id = copy_varlena(row, C_AGGREGATE_ID);
  event->event_type = copy_varlena(row, C_EVENT_TYPE);
  event->key = copy_varlena(row, C_KEY);
  event->dedup_key = copy_varlena(row, C_DEDUP_KEY);
  event->content_type = copy_varlena(row, C_CONTENT_TYPE);
  read_headers(headers, event);
}

void event_row_to_event(const EventRow *row, bool ordered, size_t max_payload, ob_event *event, uint32 *bytes) {
  const Datum *values = row->tuple->tts_values;
  const bool *nulls = row->tuple->tts_isnull;
  EventSize size = {EVENT_FITS, true, 0, 0};

  memset(event, 0, sizeof(*event));
  event->key_hash = ordered ? row->key_hash : 0;
  event->position = row->position;
  event->created_at_us = event_unix_us(row->created_at);
  event->has_seq = !nulls[C_SEQ];
  event->seq = nulls[C_SEQ] ? 0 : DatumGetInt64(values[C_SEQ]);
  memcpy(event->id, DatumGetUUIDP(values[C_ID])->data, UUID_LEN);
  event->attempt = row->attempts + 1;
  event->failed = event_row_failed(row);
  read_texts(row, &size, event);
  if (size.fit == EVENT_FITS)
    read_payload(row, max_payload, &size, event);
  if (size.fit != EVENT_FITS) {
    event->payload = {NULL, 0};
    event->headers = NULL;
    event->n_headers = 0;
    ob_error *error = (ob_error *)MemoryContextAlloc(round_context, sizeof(ob_error));
    event_size_error(&size, max_payload, error);
    event->refused = error;
  }
  size_t total = event->payload.len + event->aggregate_type.len + event->key.len + 256;
  for (const ob_header &header : std::span(event->headers, event->n_headers))
    total += header.name.len + header.value.len;
  *bytes = (uint32)Min(total, (size_t)PG_UINT32_MAX);
}
