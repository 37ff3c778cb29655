/* error_text.cpp: the delivery library does the same for its own texts (src/delivery/base/text.h). */
#include "server/base/error_text.h"

#include "server/base/sql_function.h"

extern "C" {
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
}

static const char MARK[] = " [cut]";

void copy_error(char *to, size_t size, const char *error) {
  Assert(size >= sizeof(MARK));
  const size_t length = strlen(error);

  if (length < size) {
    memcpy(to, error, length + 1);
    return;
  }
  const int kept = pg_mbcliplen(error, (int)length, (int)(size - sizeof(MARK)));
  memcpy(to, error, kept);
  memcpy(to + kept, MARK, sizeof(MARK));
}

/* PostgreSQL's own, which name columns, publications and settings at most. */
static bool is_about_a_table(int code) {
  const int category = ERRCODE_TO_CATEGORY(code);

  return category == ERRCODE_TO_CATEGORY(ERRCODE_SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION) ||
         category == ERRCODE_TO_CATEGORY(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE);
}

void copy_server_error(char *to, size_t size, const ErrorData *error) {
  const char *message = error->message ? error->message : "";
  const char *detail = error->detail, *hint = error->hint;

  if (!is_about_a_table(error->sqlerrcode) || (detail == NULL && hint == NULL)) {
    copy_error(to, size, message);
    return;
  }
  char *whole = psprintf("%s%s%s%s%s", message, detail ? ": " : "", detail ? detail : "", hint ? " Hint: " : "",
                         hint ? hint : "");
  copy_error(to, size, whole);
  pfree(whole);
}

void library_text(char *text) {
  if (GetDatabaseEncoding() == PG_UTF8)
    return;
  char *to = text;
  for (const char *from = text; *from != '\0'; from++)
    if (!IS_HIGHBIT_SET(*from))
      *to++ = *from;
    else if ((*from & 0xC0) != 0x80) /* the first byte of a character */
      *to++ = '?';
  *to = '\0';
}

void library_error(ob_error *error) {
  library_text(error->message);
  library_text(error->detail);
  library_text(error->hint);
}

const char *shown_error(const char *error) {
  char *shown = (char *)palloc(SHOWN_ERROR + 1);

  copy_error(shown, SHOWN_ERROR + 1, error);
  return shown;
}

SQL_FUNCTION(outbox_error_text) {
  text *error = PG_GETARG_TEXT_PP(0);
  char kept[OB_ERROR_MAX + 1];

  if (VARSIZE_ANY_EXHDR(error) <= OB_ERROR_MAX)
    PG_RETURN_TEXT_P(error);
  copy_error(kept, sizeof(kept), text_to_cstring(error));
  PG_RETURN_TEXT_P(cstring_to_text(kept));
}
