/* error_text.h: shortens the text of an error for a message, a log line, or the column last_error. */
#pragma once

#include "server/base/server.h"

/* Copies the text, which is in the database's encoding. A text that is too long is cut at a whole character, and
 * marked with " [cut]". */
void copy_error(char *to, size_t size, const char *error);

/* The same, of at most SHOWN_ERROR bytes and allocated: for an errdetail(). */
enum { SHOWN_ERROR = 1000 };
const char *shown_error(const char *error);
