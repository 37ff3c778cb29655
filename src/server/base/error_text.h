/* error_text.h: shortens the text of an error for a message, a log line, or the column last_error. */
#pragma once

#include "delivery/delivery.h"
#include "server/base/server.h"

/* Copies the text, which is in the database's encoding. A text that is too long is cut at a whole character, and
 * marked with " [cut]". */
void copy_error(char *to, size_t size, const char *error);

/* The same of an error of PostgreSQL's, with its DETAIL and HINT if it is about a table and not about a row: the
 * DETAIL of a constraint or of a user's trigger may have values of the row, which views and the log do not show. */
void copy_server_error(char *to, size_t size, const ErrorData *error);

/* Texts of the delivery library are UTF-8. In a database of another encoding each of their characters outside ASCII
 * becomes a question mark, in place: a conversion may fail, and invalid text would make dumps unrestorable and views
 * fail. */
void library_text(char *text);
void library_error(ob_error *error);

/* The same as copy_error(), of at most SHOWN_ERROR bytes and allocated: for an errdetail(). */
enum { SHOWN_ERROR = 1000 };
const char *shown_error(const char *error);
