#include "server/event/header_text.h"

extern "C" {
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/numeric.h"
}

ob_text header_text(const JsonbValue *value) {
  switch (value->type) {
  case jbvString:
    return {value->val.string.val, (size_t)value->val.string.len};
  case jbvNumeric: {
    char *number = DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value->val.numeric)));
    return {number, strlen(number)};
  }
  case jbvBool:
    return value->val.boolean ? ob_text{"true", 4} : ob_text{"false", 5};
  default:
    return {NULL, 0};
  }
}

static ob_text utf8_text(const JsonbValue *value) {
  ob_text text = header_text(value);

  if (text.data == NULL)
    return text;
  char *converted = pg_server_to_any(text.data, (int)text.len, PG_UTF8);
  return {converted, converted == text.data ? text.len : strlen(converted)};
}

ob_header *header_list(Jsonb *headers, size_t *n) {
  *n = 0;
  if (headers == NULL || !JB_ROOT_IS_OBJECT(headers))
    return NULL;
  ob_header *list = (ob_header *)palloc(sizeof(ob_header) * (JB_ROOT_COUNT(headers) + 1));
  *n = headers_read(headers, list, utf8_text);
  return list;
}
