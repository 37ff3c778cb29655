/*
 * event_row.cpp: a round's events are copied into memory blocks that the next round uses again. This takes 12 % of
 * the main thread's time; 19 % with fresh pages for every round.
 */
#include "server/event/event_row.h"

#include <span>

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

static ob_text copy_json(const EventRow *row, int column) {
  static const int KEPT = 64 * 1024;
  static StringInfoData text = {};
  Jsonb *value = DatumGetJsonbP(row->tuple->tts_values[column]);

  if (text.data == NULL) {
    MemoryContext previous = MemoryContextSwitchTo(TopMemoryContext);
    initStringInfo(&text);
    MemoryContextSwitchTo(previous);
  }
  resetStringInfo(&text);
  jsonb_append_text(&text, &value->root);
  free_detoasted(row, column, value);
  ob_text copy = copy_text(text.data, text.len);
  if (text.maxlen > KEPT) {
    pfree(text.data);
    text.data = NULL;
  }
  return copy;
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

static void read_headers(const EventRow *row, ob_event *event) {
  event->headers = NULL;
  event->n_headers = 0;
  if (row->tuple->tts_isnull[C_HEADERS])
    return;
  Jsonb *headers = DatumGetJsonbP(row->tuple->tts_values[C_HEADERS]);
  if (!JB_ROOT_IS_OBJECT(headers) || JB_ROOT_COUNT(headers) == 0)
    return;
  ob_header *list = (ob_header *)MemoryContextAlloc(round_context, sizeof(ob_header) * JB_ROOT_COUNT(headers));
  event->n_headers = headers_read(headers, list, header_value);
  event->headers = list;
}

bool event_row_fits(const EventRow *row) {
  static const Size SMALL = 1024 * 1024;
  static const int COPIES = 4; /* detoasted, as text, in the delivery library, in the request */
  Size size = 0;

  if (!row->tuple->tts_isnull[C_PAYLOAD])
    size += toast_raw_datum_size(row->tuple->tts_values[C_PAYLOAD]);
  if (!row->tuple->tts_isnull[C_PAYLOAD_BYTES])
    size += toast_raw_datum_size(row->tuple->tts_values[C_PAYLOAD_BYTES]);
  if (size < SMALL)
    return true;
  void *all = palloc_extended(size * COPIES, MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);
  if (all == NULL)
    return false;
  pfree(all);
  return true;
}

uint32 event_row_to_event(const EventRow *row, bool ordered, ob_event *event) {
  const Datum *values = row->tuple->tts_values;
  const bool *nulls = row->tuple->tts_isnull;

  memset(event, 0, sizeof(*event));
  event->key_hash = ordered ? row->key_hash : 0;
  event->position = row->position;
  event->created_at_us = event_unix_us(row->created_at);
  event->has_seq = !nulls[C_SEQ];
  event->seq = nulls[C_SEQ] ? 0 : DatumGetInt64(values[C_SEQ]);
  memcpy(event->id, DatumGetUUIDP(values[C_ID])->data, UUID_LEN);
  event->aggregate_type = copy_varlena(row, C_AGGREGATE_TYPE);
  event->aggregate_id = copy_varlena(row, C_AGGREGATE_ID);
  event->event_type = copy_varlena(row, C_EVENT_TYPE);
  event->key = copy_varlena(row, C_KEY);
  event->dedup_key = copy_varlena(row, C_DEDUP_KEY);
  event->content_type = copy_varlena(row, C_CONTENT_TYPE);
  event->attempt = row->attempts + 1;
  event->failed = event_row_failed(row);
  if (!nulls[C_PAYLOAD_BYTES]) {
    event->payload_is_bytes = true;
    event->payload = copy_varlena(row, C_PAYLOAD_BYTES);
  } else if (!nulls[C_PAYLOAD]) {
    event->payload = copy_json(row, C_PAYLOAD);
  }
  read_headers(row, event);
  size_t bytes = event->payload.len + event->aggregate_type.len + event->key.len + 256;
  for (const ob_header &header : std::span(event->headers, event->n_headers))
    bytes += header.name.len + header.value.len;
  return (uint32)Min(bytes, (size_t)PG_UINT32_MAX);
}
