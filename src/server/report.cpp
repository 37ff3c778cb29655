#include "report.h"

extern "C" {
#include "utils/builtins.h"
#include "utils/varlena.h"
}

enum { MAX_OPTION_NAMES = 1024 };

static int sqlstate(ob_error_kind kind) {
  switch (kind) {
  case OB_UNKNOWN_OPTION:
    return ERRCODE_FDW_INVALID_OPTION_NAME;
  case OB_BAD_VALUE:
    return ERRCODE_INVALID_PARAMETER_VALUE;
  case OB_MISSING_OPTION:
    return ERRCODE_FDW_DYNAMIC_PARAMETER_VALUE_NEEDED;
  case OB_WRONG_PLACE:
    return ERRCODE_FDW_OPTION_NAME_NOT_FOUND;
  case OB_FORBIDDEN:
    return ERRCODE_INSUFFICIENT_PRIVILEGE;
  case OB_TOO_LARGE:
    return ERRCODE_PROGRAM_LIMIT_EXCEEDED;
  case OB_OK:
  case OB_INTERNAL:
    break;
  }
  return ERRCODE_INTERNAL_ERROR;
}

void report_error(const ob_error *error) {
  ereport(ERROR, (errcode(sqlstate(error->kind)), errmsg_internal("%s", error->message),
                  error->detail[0] ? errdetail_internal("%s", error->detail) : 0,
                  error->hint[0] ? errhint("%s", error->hint) : 0));
  pg_unreachable();
}

void report_option_error(const ob_error *error, const char *kind, ob_scope scope) {
  if (error->kind != OB_UNKNOWN_OPTION || error->hint[0])
    report_error(error);

  ob_error with_hint = *error;
  const char **names = (const char **)palloc(sizeof(char *) * MAX_OPTION_NAMES);
  const char *nearest = nearest_name(error->subject, names, ob_option_names(kind, scope, names, MAX_OPTION_NAMES));
  if (nearest)
    snprintf(with_hint.hint, sizeof with_hint.hint, "Perhaps you meant the option \"%s\".", nearest);
  report_error(&with_hint);
}

const char *nearest_name(const char *given, const char *const *names, size_t n) {
  int given_length = (int)strlen(given);
  int best = Max(given_length / 2, 1) + 1; /* more changes than this is another word */
  const char *nearest = NULL;

  if (given_length == 0 || given_length > 255)
    return NULL; /* the distance is not defined for longer ones */
  for (size_t i = 0; i < n; i++) {
    int length = (int)strlen(names[i]);
    if (length > 255)
      continue;
    int distance = varstr_levenshtein_less_equal(given, given_length, names[i], length, 1, 1, 1, best - 1, true);
    if (distance < best) {
      best = distance;
      nearest = names[i];
    }
  }
  return nearest;
}
