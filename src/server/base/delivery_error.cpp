/*
 * delivery_error.cpp: maps the error codes of the delivery library to SQLSTATEs. Texts are copied into PostgreSQL's
 * memory before ereport(), which leaves by longjmp.
 */
#include "server/base/delivery_error.h"

#include "server/base/error_text.h"

#include <span>
#include <string_view>

extern "C" {
#include "lib/stringinfo.h"
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
  case OB_OUT_OF_MEMORY:
    return ERRCODE_OUT_OF_MEMORY;
  case OB_OK:
  case OB_INTERNAL:
    break;
  }
  return ERRCODE_INTERNAL_ERROR;
}

void delivery_error(const ob_error *utf8_error) {
  ob_error error = *utf8_error;

  library_error(&error);
  ereport(ERROR, (errcode(sqlstate(error.kind)), errmsg_internal("%s", error.message),
                  error.detail[0] ? errdetail_internal("%s", error.detail) : 0,
                  error.hint[0] ? errhint("%s", error.hint) : 0));
  pg_unreachable();
}

size_t delivery_count(size_t n) {
  if (n == SIZE_MAX)
    ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
  return n;
}

static void sink_context(void *sink) {
  errcontext("sink \"%s\"", (const char *)sink);
}

void delivery_error_of_sink(const ob_error *error, const char *sink) {
  ErrorContextCallback context = {error_context_stack, sink_context, const_cast<char *>(sink)};

  error_context_stack = &context;
  delivery_error(error);
}

void delivery_warn_too_large(const ob_error *error, const char *sink) {
  ereport(WARNING, (errcode(sqlstate(error->kind)),
                    errmsg("%s, and becomes a dead letter of sink \"%s\"", error->message, sink),
                    error->detail[0] ? errdetail_internal("%s", error->detail) : 0,
                    error->hint[0] ? errhint("%s", error->hint) : 0));
}

/* DETAIL and HINT for errors to which the delivery library gave none. */
static void fill_detail(ob_error *error, const char *kind, ob_scope scope) {
  const char *where = scope == OB_SERVER ? "server" : "user mapping for a server";

  if (error->kind == OB_UNKNOWN_OPTION)
    snprintf(error->detail, sizeof error->detail, "A %s of wrapper \"outbox_%s\" has no such option.", where, kind);
  else if (error->kind == OB_FORBIDDEN)
    snprintf(error->detail, sizeof error->detail,
             "The option gives access to more than the server's owner may reach.");
  else if (error->subject[0])
    snprintf(error->detail, sizeof error->detail, "The option \"%s\" cannot work as given.", error->subject);
}

static void fill_hint(ob_error *error, const char *kind, ob_scope scope) {
  if (error->kind == OB_UNKNOWN_OPTION) {
    const char **names = (const char **)palloc(sizeof(char *) * MAX_OPTION_NAMES);
    size_t n = delivery_count(ob_kind(kind)->option_names(kind, scope, names, MAX_OPTION_NAMES));
    const char *closest = closest_match(error->subject, names, n);
    StringInfoData list;

    if (closest) {
      snprintf(error->hint, sizeof error->hint, "Perhaps you meant the option \"%s\".", closest);
      return;
    }
    initStringInfo(&list);
    for (size_t i = 0; i < n && i < 20; i++)
      appendStringInfo(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    if (n == 0)
      snprintf(error->hint, sizeof error->hint, "It has no options: leave this one out.");
    else
      snprintf(error->hint, sizeof error->hint, "Options here are %s%s.", list.data, n > 20 ? ", ..." : "");
  } else if (error->kind == OB_FORBIDDEN) {
    snprintf(error->hint, sizeof error->hint,
             "Ask a superuser. Others can alter a server that has this option only by dropping it.");
  } else if (error->kind == OB_MISSING_OPTION) {
    snprintf(error->hint, sizeof error->hint, "Add option \"%s\".", error->subject);
  } else if (error->subject[0]) {
    snprintf(error->hint, sizeof error->hint, "Correct option \"%s\", or leave it out.", error->subject);
  }
}

void delivery_option_error(const ob_error *error, const char *kind, ob_scope scope) {
  ob_error full = *error;

  if (!full.detail[0])
    fill_detail(&full, kind, scope);
  if (!full.hint[0])
    fill_hint(&full, kind, scope);
  delivery_error(&full);
}

/* ssl_ca_pem is ca_pem with another word before it. */
static bool has_word_before(std::string_view longer, std::string_view name) {
  return longer.size() > name.size() && longer.ends_with(name) && longer[longer.size() - name.size() - 1] == '_';
}

const char *closest_match(const char *given, const char *const *names, size_t n) {
  int given_length = (int)strlen(given);
  int best = Max(given_length / 2, 1) + 1; /* a name that differs in more characters is no typing error */
  const char *closest = NULL;

  if (given_length == 0 || given_length > 255)
    return NULL; /* varstr_levenshtein() takes at most 255 bytes */
  for (const char *name : std::span(names, n)) {
    int length = (int)strlen(name);
    if (length > 255)
      continue;
    int distance = has_word_before(name, given) || has_word_before(given, name)
                       ? 1
                       : varstr_levenshtein_less_equal(given, given_length, name, length, 1, 1, 1, best - 1, true);
    if (distance < best) {
      best = distance;
      closest = name;
    }
  }
  return closest;
}
