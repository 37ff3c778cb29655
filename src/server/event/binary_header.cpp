#include "server/event/binary_header.h"

#include "server/base/compat.h"

extern "C" {
#include "common/base64.h"
}

static const char MEMBER[] = "base64";

/* In the container itself; false when there is none. */
static bool find_text(const JsonbValue *value, JsonbValue *text) {
  if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data) ||
      JsonContainerSize(value->val.binary.data) != 1)
    return false;
  return getKeyJsonValueFromContainer(value->val.binary.data, MEMBER, strlen(MEMBER), text) != NULL &&
         text->type == jbvString;
}

bool is_binary_header(const JsonbValue *value) {
  JsonbValue text;

  return find_text(value, &text);
}

size_t binary_header_room(const JsonbValue *value) {
  JsonbValue text;

  return find_text(value, &text) ? (size_t)pg_b64_dec_len(text.val.string.len) : 0;
}

int binary_header_decode(const JsonbValue *value, char *bytes) {
  JsonbValue text;

  if (!find_text(value, &text))
    return -1;
  return outbox_b64_decode(text.val.string.val, text.val.string.len, bytes, pg_b64_dec_len(text.val.string.len));
}
