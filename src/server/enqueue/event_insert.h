/* event_insert.h: our own INSERTs of pending events. They ask for no right on the table. */
#pragma once

#include "server/event/trigger_row.h"

typedef enum EventWriter {
  WRITER_USER,    /* INSERT, COPY, an ORM */
  WRITER_ENQUEUE, /* outbox.enqueue(): the sink's USAGE and the dedup key are settled */
  WRITER_COPY     /* one more row of an event that goes to several sinks: all is settled */
} EventWriter;

/* For outbox.enqueue(): straight to the executor's end, without a statement around it. `values` and `isnull` are by
 * EventColumn, up to EV_GIVEN. */
void event_insert(const Datum *values, const bool *isnull);

/* One more row of an event for each of these sinks (names, as text). The id is new: nobody else can have written it.
 */
void event_insert_copies(const Datum *values, const bool *isnull, const Datum *sinks, int n);

/* One more row of an event; nothing when its id and sink are there already, so that a repeated event whose writer
 * said ON CONFLICT DO NOTHING does not fail in its copies. Inside owner_enter(). */
void event_insert_copy_if_missing(const Datum *values, const bool *isnull);

/* Runs a statement each of whose rows is one more row of an event, with its sink. */
void event_insert_copies_by(void (*insert)(void *), void *argument);

/* For the trigger: who wrote the row at hand. Asking once is all: the next row is a user's again. */
EventWriter event_writer_take(void);
