/* event_size.h: how large an event is when it is sent, and whether it may be. */
#pragma once

#include "server/event/jsonb_text.h"

#include "delivery/delivery.h"

/* For what is sent beside the payload: headers as JSON text, and the names and keys. In bytes. */
enum { EVENT_MAX_TEXTS = 1024 * 1024 };

/* The columns of an event that are sent; NULL for a column that is NULL, or that is not to be measured. */
typedef struct SentColumns {
  const struct varlena *payload, *payload_bytes, *headers;
  const struct varlena *texts[6];
} SentColumns;

typedef enum EventFit { EVENT_FITS, EVENT_PAYLOAD_TOO_LARGE, EVENT_TEXTS_TOO_LARGE, EVENT_TOO_DEEP } EventFit;

typedef struct EventSize {
  EventFit fit;
  bool exact;     /* otherwise what is too large has more bytes than the number here */
  size_t payload; /* as text in the server's encoding, or raw */
  size_t texts;
} EventSize;

/* Can the payload have at most `most` bytes, by its stored size alone? Otherwise fills *size. Reads no TOAST value.
 */
bool payload_may_fit(const struct varlena *payload, bool is_bytes, size_t most, EventSize *size);

/* After payload_may_fit(), for a detoasted payload: counts its text into size->payload, up to `most` bytes. */
void json_measure(Jsonb *payload, size_t most, EventSize *size);

/* Measures the headers, detoasted or NULL, and the texts into size->texts. */
void texts_measure(const SentColumns *columns, Jsonb *headers, EventSize *size);

/* Are the headers alone no larger than that? */
bool headers_fit(Jsonb *headers);

/* Measures all columns. `size->fit` is EVENT_FITS, or the first reason against the event. */
void event_measure(const SentColumns *columns, size_t max_payload, EventSize *size);

/* Counts an event's payload that is too large to its end, for a message to its writer. */
void event_measure_exactly(const SentColumns *columns, EventSize *size);

/* The error of an event that does not fit, of kind OB_TOO_LARGE. */
void event_size_error(const EventSize *size, size_t max_payload, ob_error *error);
