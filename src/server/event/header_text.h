/* header_text.h: converts the JSON headers of an event to the texts that are sent. */
#pragma once

#include "server/base/server.h"

#include "delivery/delivery.h"

extern "C" {
#include "utils/jsonb.h"
}

/* Returns a header's value in the server's encoding; `data` is NULL for null, an array or an object. A string points
 * into the jsonb, a number is palloc'd.
 */
ob_text header_text(const JsonbValue *value);

/* Reads the headers of a stored event into `list`, which has room for JB_ROOT_COUNT entries, and returns their
 * number. The trigger has checked that the headers are a flat object in which a nested object stands for bytes.
 * `text_of` converts names and values. */
template <class TextOf> size_t headers_read(Jsonb *headers, ob_header *list, TextOf text_of) {
  JsonbIterator *walk = JsonbIteratorInit(&headers->root);
  JsonbValue value;
  JsonbIteratorToken token;
  size_t n = 0;

  while ((token = JsonbIteratorNext(&walk, &value, true)) != WJB_DONE) {
    if (token == WJB_KEY)
      list[n].name = text_of(&value);
    else if (token == WJB_VALUE) {
      list[n].binary = value.type == jbvBinary;
      list[n++].value = text_of(&value);
    }
  }
  return n;
}

/* A header whose value is bytes is written as {"base64": "AQID"}. Returns true if the value is an object with this
 * one member and a string in it; *text then points to the string in the jsonb. */
bool binary_header_text(const JsonbValue *value, JsonbValue *text);
/* Decodes that string into `bytes`, which has room for as many bytes as the string has. Returns the number of bytes,
 * or -1 for invalid base64. */
int binary_header_decode(const JsonbValue *text, char *bytes);

/* Returns the headers of a stored event as a list in UTF-8; a header of bytes has no value. The list is empty for
 * headers that are too large to be sent. Several allocations: call it in a context that is reset soon. */
ob_header *header_list(Jsonb *headers, size_t *n);
