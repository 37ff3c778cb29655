/* trigger_row.h: the columns of a row of outbox.events in a trigger. */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "access/htup.h"
#include "access/tupdesc.h"
#include "utils/rel.h"
}

typedef enum EventColumn {
  EV_ID,
  EV_AGGREGATE_TYPE,
  EV_AGGREGATE_ID,
  EV_EVENT_TYPE,
  EV_PAYLOAD,
  EV_PAYLOAD_BYTES,
  EV_CONTENT_TYPE,
  EV_HEADERS,
  EV_PARTITION_KEY,
  EV_DEDUP_KEY,
  EV_SEQ,
  EV_CREATED_AT,
  EV_AVAILABLE_AT,
  EV_ATTEMPTS,
  EV_STATUS,
  EV_LAST_ERROR,
  EV_SENT_AT,
  EV_LAST_ATTEMPT_AT,
  EV_SINK,
  EV_BLOCKED_BY,
  EV_GIVEN, /* a writer may set the columns before this one; the extension sets the others */
  EV_POSITION = EV_GIVEN,
  EV_XACT,
  EV_ORIGIN,
  EV_APPLICATION,
  EV_ROUTED, /* a further row of a routed event has the columns before this one of the row that waited */
  EV_OVERTAKEN_BY = EV_ROUTED,
  EV_REDRIVE_LATE,
  EV_ACKNOWLEDGEMENT,
  EV_COLUMNS
} EventColumn;

extern const char *const event_column_names[EV_COLUMNS];
extern const Oid event_column_types[EV_COLUMNS];

typedef struct TriggerRow {
  TupleDesc desc;
  const AttrNumber *number; /* by EventColumn */
  Datum *values;            /* by attribute */
  bool *isnull;
} TriggerRow;

/* Deforms the tuple, with arrays in the current memory context. Partitions may number their attributes differently.
 */
void trigger_row_open(TriggerRow *row, Relation relation, HeapTuple tuple);

static inline bool row_isnull(const TriggerRow *row, EventColumn column) {
  return row->isnull[row->number[column] - 1];
}
static inline Datum row_get(const TriggerRow *row, EventColumn column) {
  return row->values[row->number[column] - 1];
}
static inline void row_set(TriggerRow *row, EventColumn column, Datum value) {
  row->values[row->number[column] - 1] = value;
  row->isnull[row->number[column] - 1] = false;
}
static inline void row_set_null(TriggerRow *row, EventColumn column) {
  row->isnull[row->number[column] - 1] = true;
}
static inline void row_default(TriggerRow *row, EventColumn column, Datum value) {
  if (row_isnull(row, column))
    row_set(row, column, value);
}

/* Returns the attribute numbers of outbox.events or a partition, by EventColumn. Valid until the next call or
 * invalidation. */
const AttrNumber *column_numbers(Relation relation);

/* Is the column's value the same in both rows, byte for byte? */
bool row_same(const TriggerRow *a, const TriggerRow *b, EventColumn column);

/* Does the row have this status? NULL counts as PENDING, since writers may insert an explicit NULL. */
bool row_has_status(const TriggerRow *row, const char *status);
