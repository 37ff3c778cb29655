/* event_check.h: checks an event while its writer can still get an error. */
#pragma once

#include "server/catalog/route.h"
#include "server/event/event_size.h"
#include "server/event/trigger_row.h"

#include "delivery/delivery.h"

/* The headers of an event in UTF-8, palloc'd. */
typedef struct EventHeaders {
  ob_header *list;
  size_t n;
} EventHeaders;
/* Measures the event, and raises an error when it is too large for every sink that there can be. Looks only at
 * columns that differ from `before` (NULL: the row is new). */
void event_check_size(const TriggerRow *before, const TriggerRow *row, EventSize *size);

/* Does an UPDATE give the event another payload? Reads no TOAST value, which may be damaged. */
bool event_payload_replaced(const TriggerRow *before, const TriggerRow *after);

/* Raises an error for text that cannot be converted to UTF-8, because it could not be sent. Skips columns that equal
 * `before` (NULL: the row is new), and does nothing in a database with encoding UTF8. */
void event_check_encoding(const TriggerRow *before, const TriggerRow *row);

/* Raises an error for invalid names, headers, payload or created_at. Converts numbers and booleans in headers to
 * text, and sets `headers`. */
void event_check(TriggerRow *row, EventHeaders *headers);

/* Raises an error for a created_at that no consumer could read. */
void event_check_created_at(const TriggerRow *row);

/* Raises an error when both payload and payload_bytes are given. A payload column that the INSERT left out has the
 * default {}: beside payload_bytes, {} counts as no payload and becomes NULL. */
void event_check_payload(TriggerRow *row);

/* After event_check_size(). Raises an error when a sink can never send the event. An event that is too large for some
 * of the sinks is accepted with a warning, and becomes a dead letter there; one that is too large for all is an
 * error. `is_new`: the event is being enqueued, so probable mistakes are errors as well. */
void event_check_sinks(const TriggerRow *row, const EventHeaders *headers, const EventSize *size,
                       RouteSink *const *sinks, int n, bool is_new);
