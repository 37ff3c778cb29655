/*
 * event_size.cpp: an event is measured by what is sent of it: when it is enqueued or changed, and again when it is
 * claimed, because rows also come from restores and subscriptions, and options change. An event that no process can
 * render would otherwise end, or occupy, each worker that reads it.
 */
#include "server/event/event_size.h"

extern "C" {
#include "access/detoast.h"
}

#include <span>

static Size raw_size(const struct varlena *value) {
  return toast_raw_datum_size(PointerGetDatum(value)) - VARHDRSZ;
}

/* The text of a jsonb has at least a quarter of its stored bytes: in an array of small numbers each takes 12, and
 * "1, " has 3. */
static size_t shortest_text(Size raw) {
  static const Size FIXED = 16, STORED_BYTES = 4;

  return raw > FIXED ? (raw - FIXED) / STORED_BYTES : 0;
}

static void *detoasted(const struct varlena *value) {
  return value ? PG_DETOAST_DATUM(PointerGetDatum(value)) : NULL;
}

static void free_detoasted(void *copy, const struct varlena *value) {
  if (copy != (const void *)value)
    pfree(copy);
}

bool payload_may_fit(const struct varlena *payload, bool is_bytes, size_t most, EventSize *size) {
  const Size raw = raw_size(payload);

  size->payload = is_bytes ? raw : shortest_text(raw);
  size->exact = is_bytes;
  if (size->payload <= most)
    return true;
  size->fit = EVENT_PAYLOAD_TOO_LARGE;
  return false;
}

void json_measure(Jsonb *payload, size_t most, EventSize *size) {
  const JsonbFit fit = jsonb_text_length(&payload->root, most, &size->payload);

  size->exact = fit == JSONB_FITS || most == SIZE_MAX;
  if (fit != JSONB_FITS)
    size->fit = fit == JSONB_TOO_DEEP ? EVENT_TOO_DEEP : EVENT_PAYLOAD_TOO_LARGE;
}

bool headers_fit(Jsonb *headers) {
  size_t length;

  return jsonb_text_length(&headers->root, EVENT_MAX_TEXTS, &length) != JSONB_TOO_LARGE;
}

void texts_measure(const SentColumns *columns, Jsonb *headers, EventSize *size) {
  JsonbFit fit = JSONB_FITS;

  if (headers)
    fit = jsonb_text_length(&headers->root, EVENT_MAX_TEXTS, &size->texts);
  for (const struct varlena *text : columns->texts)
    if (text)
      size->texts += raw_size(text);
  if (size->texts > EVENT_MAX_TEXTS)
    size->fit = EVENT_TEXTS_TOO_LARGE;
  else if (fit == JSONB_TOO_DEEP)
    size->fit = EVENT_TOO_DEEP;
}

void event_measure(const SentColumns *columns, size_t max_payload, EventSize *size) {
  *size = {EVENT_FITS, true, 0, 0};
  if (columns->payload && payload_may_fit(columns->payload, false, max_payload, size)) {
    Jsonb *payload = (Jsonb *)detoasted(columns->payload);
    json_measure(payload, max_payload, size);
    free_detoasted(payload, columns->payload);
  }
  if (columns->payload_bytes && size->fit == EVENT_FITS) /* a payload beside it is the empty default */
    (void)payload_may_fit(columns->payload_bytes, true, max_payload, size);
  if (size->fit != EVENT_FITS)
    return;
  Jsonb *headers = (Jsonb *)detoasted(columns->headers);
  texts_measure(columns, headers, size);
  free_detoasted(headers, columns->headers);
}

void event_measure_exactly(const SentColumns *columns, EventSize *size) {
  if (size->fit != EVENT_PAYLOAD_TOO_LARGE || size->exact)
    return;
  Jsonb *payload = (Jsonb *)detoasted(columns->payload);
  size->fit = EVENT_FITS;
  json_measure(payload, SIZE_MAX, size);
  size->fit = size->fit == EVENT_FITS ? EVENT_PAYLOAD_TOO_LARGE : size->fit;
  free_detoasted(payload, columns->payload);
}

void event_size_error(const EventSize *size, size_t max_payload, ob_error *error) {
  memset(error, 0, sizeof(*error));
  error->kind = OB_TOO_LARGE;
  switch (size->fit) {
  case EVENT_FITS:
    break;
  case EVENT_PAYLOAD_TOO_LARGE:
    strlcpy(error->message, "payload of the event is too large", sizeof(error->message));
    if (size->exact)
      snprintf(error->detail, sizeof(error->detail), "As it is sent, it has %zu bytes, and at most %zu are allowed.",
               size->payload, max_payload);
    else
      snprintf(error->detail, sizeof(error->detail),
               "As it is sent, it has more than the %zu bytes that are allowed.", max_payload);
    strlcpy(error->hint,
            max_payload < OB_LARGEST_PAYLOAD
                ? "Raise option \"max_payload\" of the sink, or send a reference to the data."
                : "Send a reference to the data.",
            sizeof(error->hint));
    break;
  case EVENT_TEXTS_TOO_LARGE:
    strlcpy(error->message, "headers, names and keys of the event are too large", sizeof(error->message));
    snprintf(error->detail, sizeof(error->detail), "Together they have more than the %d bytes that are allowed.",
             EVENT_MAX_TEXTS);
    strlcpy(error->hint, "Put the data into the payload.", sizeof(error->hint));
    break;
  case EVENT_TOO_DEEP:
    strlcpy(error->message, "JSON of the event is nested too deeply", sizeof(error->message));
    snprintf(error->detail, sizeof(error->detail), "At most %d levels of arrays and objects are allowed.",
             JSONB_MAX_DEPTH);
    strlcpy(error->hint, "Send it as a string: to_jsonb(payload::text).", sizeof(error->hint));
    break;
  }
}
