/* event_check.h: what an event must look like, judged while its writer can still be told. */
#pragma once

#include "server/catalog/route.h"
#include "server/event/trigger_row.h"

#include "delivery/delivery.h"

/* Names and headers; numbers and booleans in headers become text. `headers` gets the list, UTF-8, palloc'd. */
typedef struct EventHeaders {
  ob_header *list;
  size_t n;
} EventHeaders;
/* Refuses text that is not UTF-8 or has no equivalent there: no sink could be sent it. What is as it was `before`
 * (NULL: the row is new) is not looked at. Costs nothing where the database's encoding is UTF8. */
void event_check_encoding(const TriggerRow *before, const TriggerRow *row);

void event_check(TriggerRow *row, EventHeaders *headers);

/* Asks each sink whether it can ever send the event. Too large for some of them is left to their dead letters; too
 * large for all is an error. `is_new`: the event is being enqueued, and is refused for probable mistakes as well. */
void event_check_sinks(const TriggerRow *row, const EventHeaders *headers, RouteSink *const *sinks, int n,
                       bool is_new);
