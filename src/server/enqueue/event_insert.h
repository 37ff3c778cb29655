/* event_insert.h: the extension's own INSERTs of pending events, without a privilege check on the table. */
#pragma once

#include "server/event/trigger_row.h"

typedef enum EventWriter {
  WRITER_USER,    /* a user's INSERT or COPY, also by an ORM */
  WRITER_ENQUEUE, /* outbox.enqueue(): the sink's USAGE and the dedup key are checked already */
  /* One more row of an event with several sinks: everything is checked already, and it may have the position,
   * transaction and origin that it is to have. */
  WRITER_COPY
} EventWriter;

/* For outbox.enqueue(): inserts one row without an SQL statement. `values` and `isnull` have the columns before
 * EV_GIVEN. In a transaction. */
void event_insert(const Datum *values, const bool *isnull);

/* Inserts one more row of an event for each of these sinks (names, as text). The extension has just made the id, so
 * no other row has it. In a transaction.
 */
void event_insert_copies(const Datum *values, const bool *isnull, const Datum *sinks, int n);

/* Inserts one more row of an event, or nothing if a row with its id and sink exists; returns whether it was inserted.
 * Between owner_enter() and owner_leave(). */
bool event_insert_copy_if_missing(const Datum *values, const bool *isnull);

/* The same for an event that has waited for a sink: `values` and `isnull` have the columns before EV_ROUTED. Without
 * a position it draws one. */
bool event_insert_routed_if_missing(const Datum *values, const bool *isnull);

/* Calls `insert`, which runs a statement that inserts rows of existing events with their sinks. The trigger sees them
 * as WRITER_COPY, but not what users' triggers insert meanwhile. */
void event_insert_copies_by(void (*insert)(void *), void *argument);

/* For the trigger: returns the writer of its row. */
EventWriter event_writer(void);
