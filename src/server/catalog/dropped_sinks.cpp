/*
 * dropped_sinks.cpp: the table keeps the 100 last ones, without their addresses and secrets. A sink that is created
 * under the name again is no dropped one.
 */
#include "server/catalog/dropped_sinks.h"

#include "server/catalog/wrappers.h"
#include "server/storage/owner_sql.h"

extern "C" {
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
}

#include <span>

Datum dropped_sink_options(Datum options, bool isnull) {
  size_t n;
  int kept = 0;
  const ob_option *list = wrapper_options(options, isnull, &n);
  Datum *routing = palloc_array(Datum, n + 1);

  for (const ob_option &option : std::span(list, n))
    if (strcmp(option.name, "events") == 0 || strcmp(option.name, "aggregates") == 0 ||
        strcmp(option.name, "match") == 0)
      routing[kept++] = CStringGetTextDatum(psprintf("%s=%s", option.name, option.value));
  return text_array(routing, kept);
}

static bool table_exists(void) {
  Oid schema = get_namespace_oid("outbox_internal", true);

  return OidIsValid(schema) && OidIsValid(get_relname_relid("dropped_sinks", schema));
}

void dropped_sinks_add(const char *sink, const char *kind, Datum options, const char *role) {
  static Statement add = make_statement<TEXTOID, TEXTOID, TEXTARRAYOID, TEXTOID>(
      "INSERT INTO outbox_internal.dropped_sinks AS d (name, kind, options, dropped_by) VALUES ($1, $2, $3, $4) "
      "ON CONFLICT (name) DO UPDATE SET kind = EXCLUDED.kind, options = EXCLUDED.options, "
      "dropped_at = pg_catalog.clock_timestamp(), dropped_by = EXCLUDED.dropped_by");
  static Statement bound = make_statement<>(
      "DELETE FROM outbox_internal.dropped_sinks WHERE name OPERATOR(pg_catalog.=) ANY (ARRAY("
      "SELECT d.name FROM outbox_internal.dropped_sinks AS d ORDER BY d.dropped_at DESC OFFSET 100))");
  Datum values[] = {CStringGetTextDatum(sink), CStringGetTextDatum(kind), options, CStringGetTextDatum(role)};

  if (!table_exists())
    return;
  OwnerScope scope = owner_enter();
  owner_execute(&add, values, NULL);
  owner_execute(&bound, NULL, NULL);
  owner_leave(scope);
}

void dropped_sinks_forget(const char *sink) {
  static Statement forget =
      make_statement<TEXTOID>("DELETE FROM outbox_internal.dropped_sinks WHERE name OPERATOR(pg_catalog.=) $1");
  Datum values[] = {CStringGetTextDatum(sink)};

  if (!table_exists())
    return;
  OwnerScope scope = owner_enter();
  owner_execute(&forget, values, NULL);
  owner_leave(scope);
}
