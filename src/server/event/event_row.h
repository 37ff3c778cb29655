/* event_row.h: a pending row as the worker's statements read it, and the event made from it. */
#pragma once

#include "server/storage/sql.h"

#include "delivery/delivery.h"

extern "C" {
#include "storage/itemptr.h"
#include "utils/timestamp.h"
}

#define EVENT_ROW_COLUMNS                                                                                            \
  "ctid, xmin, position, sink, partition_key, available_at, attempts, blocked_by, origin, id, aggregate_type, "      \
  "aggregate_id, event_type, payload, payload_bytes, content_type, headers, created_at, dedup_key, redrive_late, "   \
  "overtaken_by, seq, last_attempt_at"
#define EVENT_ROW_N_COLUMNS 23

#define PENDING_ROWS "SELECT " EVENT_ROW_COLUMNS " FROM outbox.events_pending WHERE "

/* Was the event a dead letter that a user redrove, in order or with force? */
typedef enum Redrive { NOT_REDRIVEN, REDRIVEN_IN_ORDER, REDRIVEN_LATE } Redrive;

/* Its pointers point into the executor's tuple: valid while the row is visited. */
typedef struct EventRow {
  ItemPointerData ctid;
  TransactionId xmin;
  int64 position;
  const char *sink; /* without a terminating zero; NULL = unrouted */
  int sink_length;
  uint64 key_hash;          /* 0 = no key */
  TimestampTz available_at; /* DT_NOBEGIN = at once */
  int attempts;
  TimestampTz failed_at; /* DT_NOEND = its last delivery did not fail, or it was redriven since */
  int64 blocked_by;      /* 0 = not blocked */
  Redrive redrive;
  int64 overtaken_by; /* 0 = by no event */
  int64 origin;
  TimestampTz created_at;
  TupleTableSlot *tuple;
} EventRow;

/* The columns that routes match; palloc'd. The headers are several allocations (header_list). */
char *event_row_aggregate_type(const EventRow *row);
char *event_row_event_type(const EventRow *row);
ob_header *event_row_headers(const EventRow *row, size_t *n);

void event_row_read(TupleTableSlot *tuple, EventRow *row);

/* Did its last delivery fail? Then it blocks its key while it waits; a scheduled event does not. */
static inline bool event_row_failed(const EventRow *row) {
  return row->failed_at != DT_NOEND;
}

/* event_row_to_event() copies into this context from now on. Call it again after each reset of the context. */
void event_rows_begin(MemoryContext round);

/* Unix time in microseconds. */
static inline int64 event_unix_us(TimestampTz time) {
  if (TIMESTAMP_NOT_FINITE(time))
    return time;
  return time + (int64)(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
}

/* Fills the event except its ticket, after event_rows_begin(), and sets *bytes to its size. An event whose payload
 * has more than `max_payload` bytes as it is sent, or that is too large in another way, is made without its content,
 * and with the reason in event->refused. */
void event_row_to_event(const EventRow *row, bool ordered, size_t max_payload, ob_event *event, uint32 *bytes);
