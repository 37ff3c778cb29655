/* event_row.h: a pending row as the claiming statements read it, and the event made of it. */
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
  "overtaken_by, seq"
#define EVENT_ROW_N_COLUMNS 22

#define PENDING_ROWS "SELECT " EVENT_ROW_COLUMNS " FROM outbox.events_pending WHERE "

/* Was it a dead letter that a user put back? */
typedef enum Redrive { NOT_REDRIVEN, REDRIVEN_IN_ORDER, REDRIVEN_LATE } Redrive;

/* Pointers into the executor's slot: valid while the row is visited. */
typedef struct EventRow {
  ItemPointerData ctid;
  TransactionId xmin;
  int64 position;
  const char *sink; /* not terminated; NULL = unrouted */
  int sink_length;
  uint64 key_hash;          /* 0 = no key */
  TimestampTz available_at; /* DT_NOBEGIN = at once */
  int attempts;
  int64 blocked_by; /* 0 = not held */
  Redrive redrive;
  int64 overtaken_by; /* 0 = by none */
  int64 origin;
  TimestampTz created_at;
  TupleTableSlot *slot;
} EventRow;

/* What routes look at; palloc'd, the headers in pieces (header_list). */
char *event_row_aggregate_type(const EventRow *row);
char *event_row_event_type(const EventRow *row);
ob_header *event_row_headers(const EventRow *row, size_t *n);

void event_row_read(TupleTableSlot *slot, EventRow *row);

/* Is there memory to copy the event, here and in the delivery library? Always true for small ones. */
bool event_row_fits(const EventRow *row);

/* The events that are made from now on are copied into this context, up to its reset. */
void event_rows_begin(MemoryContext round);

/* Unix time in microseconds. */
static inline int64 event_unix_us(TimestampTz time) {
  if (TIMESTAMP_NOT_FINITE(time))
    return time;
  return time + (int64)(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
}

/* Fills everything of the event but its ticket. Returns its size in bytes. */
uint32 event_row_to_event(const EventRow *row, bool ordered, ob_event *event);
