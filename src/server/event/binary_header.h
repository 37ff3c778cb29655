/* binary_header.h: a header whose value is bytes, written in JSON as {"base64": "AQID"}. */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "utils/jsonb.h"
}

/* Is the value an object with that one member, a string? */
bool is_binary_header(const JsonbValue *value);

/* The bytes that decoding may need. */
size_t binary_header_room(const JsonbValue *value);

/* Writes the bytes; -1 when they are no base64. */
int binary_header_decode(const JsonbValue *value, char *bytes);
