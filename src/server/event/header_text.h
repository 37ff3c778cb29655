/* header_text.h: the headers of an event in JSON, as the texts that are sent. */
#pragma once

#include "server/base/server.h"

#include "delivery/delivery.h"

extern "C" {
#include "utils/jsonb.h"
}

/* In the server's encoding. Strings lie where they are, numbers are palloc'd; data NULL: null, an array or an object.
 */
ob_text header_text(const JsonbValue *value);

/* The headers of a stored event, of which there are JB_ROOT_COUNT: the trigger has seen to it that they are a flat
 * object, in which values that are objects stand for bytes. `text_of` makes names and values. */
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

/* A header whose value is bytes is written {"base64": "AQID"}: is the value an object with that one member, a string?
 * Then *text is the string, in the container itself. */
bool binary_header_text(const JsonbValue *value, JsonbValue *text);
/* The bytes of that string, which are fewer; their number, or -1 when it is no base64. */
int binary_header_decode(const JsonbValue *text, char *bytes);

/* The headers of a stored event as a list in UTF-8; of bytes, without these. palloc'd, in pieces: for a context that
 * is soon reset. */
ob_header *header_list(Jsonb *headers, size_t *n);
