/*
 * header_text.cpp: strings, numbers and booleans become text in UTF-8. Objects, arrays and null have none;
 * event_check.cpp refuses them.
 */
#include "server/event/header_text.h"

#include "server/base/compat.h"
#include "server/event/event_size.h"

extern "C" {
#include "common/base64.h"
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

bool binary_header_text(const JsonbValue *value, JsonbValue *text) {
  static const char MEMBER[] = "base64";

  if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data) ||
      JsonContainerSize(value->val.binary.data) != 1)
    return false;
  return getKeyJsonValueFromContainer(value->val.binary.data, MEMBER, strlen(MEMBER), text) != NULL &&
         text->type == jbvString;
}

int binary_header_decode(const JsonbValue *text, char *bytes) {
  return outbox_b64_decode(text->val.string.val, text->val.string.len, bytes, text->val.string.len);
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
  if (headers == NULL || !JB_ROOT_IS_OBJECT(headers) || !headers_fit(headers))
    return NULL;
  ob_header *list = palloc_array(ob_header, JB_ROOT_COUNT(headers) + 1);
  *n = headers_read(headers, list, utf8_text);
  return list;
}
