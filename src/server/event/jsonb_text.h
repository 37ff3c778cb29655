/* jsonb_text.h: the text of a jsonb value, byte for byte as jsonb's output function writes it, and its length. */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "lib/stringinfo.h"
#include "utils/jsonb.h"
}

/* Arrays and objects within each other. Most readers of JSON stop at this depth or before (Jackson 1000, PHP 512),
 * and jsonb_in() with max_stack_depth at 2 MB accepts 14,000 levels. */
enum { JSONB_MAX_DEPTH = 1000 };

typedef enum JsonbFit { JSONB_FITS, JSONB_TOO_LARGE, JSONB_TOO_DEEP } JsonbFit;

/* Sets *length to the bytes that the text of the container has. It only looks at the value: it writes no text and
 * allocates nothing, and a number of 131,073 digits takes as long as any other. When the text is longer than `most`,
 * it stops with JSONB_TOO_LARGE, and *length is what it had until then, more than `most`. */
JsonbFit jsonb_text_length(JsonbContainer *root, size_t most, size_t *length);

/* Appends the text of the container. Otherwise than with JSONB_FITS, a part of it was appended: at most `most` bytes
 * and one number. */
JsonbFit jsonb_append_text(StringInfo out, JsonbContainer *root, size_t most);
