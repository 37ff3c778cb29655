/* event_insert.h: our own INSERTs into outbox.events, done as its owner. */
#pragma once

#include "trigger_row.h"

typedef enum EventWriter {
  WRITER_PERSON,  /* INSERT, COPY, an ORM */
  WRITER_ENQUEUE, /* outbox.enqueue(): the sink's USAGE and the dedup key are settled */
  WRITER_COPY     /* one more row of an event that goes to several sinks: all is settled */
} EventWriter;

/* Inserts one pending row. `values` and `isnull` are by EventColumn, up to EV_GIVEN. SPI is connected and the role is
 * the owner's (owner_enter). */
void event_insert(EventWriter writer, Datum *values, const bool *isnull);

/* For the trigger: who wrote the row at hand. Asking once is all: the next row is a person's again. */
EventWriter event_writer_take(void);
