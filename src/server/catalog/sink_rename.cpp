/*
 * sink_rename.cpp: the former name goes into outbox_internal.renamed_sinks, by which rows find their sink, also rows
 * of transactions that commit later. Only rows that wait for a time are rewritten.
 */
#include "server/catalog/sink_rename.h"

#include "server/storage/owner_sql.h"

extern "C" {
#include "catalog/pg_type.h"
#include "foreign/foreign.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
}

static const Oid TYPES[] = {TEXTOID, TEXTOID};

static void forget(const char *name) {
  static OwnerSql sql = {"DELETE FROM outbox_internal.renamed_sinks WHERE old_name OPERATOR(pg_catalog.=) $1", 1,
                         TYPES, NULL};
  Datum datum = CStringGetTextDatum(name);
  OwnerScope scope = owner_enter();

  owner_execute(&sql, &datum, NULL);
  owner_leave(scope);
}

/* Returns the present name of the sink whose events have this former name; NULL when there are none. */
static char *owner_of_events(const char *name) {
  static OwnerSql sql = {
      "SELECT r.new_name FROM outbox_internal.renamed_sinks AS r WHERE r.old_name OPERATOR(pg_catalog.=) $1 AND ("
      "EXISTS (SELECT FROM outbox.events_pending AS e WHERE e.available_at IS NULL AND e.sink COLLATE \"C\" "
      "OPERATOR(pg_catalog.=) $1) "
      "OR EXISTS (SELECT FROM outbox.events_pending AS e WHERE e.available_at IS NOT NULL AND e.blocked_by IS NULL "
      "AND e.sink OPERATOR(pg_catalog.=) $1) "
      "OR EXISTS (SELECT FROM outbox.events_pending AS e WHERE e.available_at IS NOT NULL AND e.blocked_by IS NOT "
      "NULL "
      "AND e.sink OPERATOR(pg_catalog.=) $1) "
      "OR EXISTS (SELECT FROM outbox.events_failed AS e WHERE e.sink OPERATOR(pg_catalog.=) $1))",
      1, TYPES, NULL};
  Datum datum = CStringGetTextDatum(name);
  MemoryContext caller = CurrentMemoryContext;
  char *owner = NULL;

  OwnerScope scope = owner_enter();
  if (owner_execute(&sql, &datum, NULL) > 0)
    owner = MemoryContextStrdup(caller, SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1));
  owner_leave(scope);
  return owner;
}

void sink_rename_claim(const char *name) {
  const char *owner = owner_of_events(name);

  if (owner)
    ereport(
        ERROR,
        (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
         errmsg("\"%s\" is the former name of the sink \"%s\", whose events still have it", name, owner),
         errdetail("Another sink with this name would get these pending events and dead letters."),
         OidIsValid(get_foreign_server_oid(owner, true))
             ? errhint(
                   "UPDATE outbox.events SET sink = %s WHERE sink = %s AND status <> 'SENT'; or take another name.",
                   quote_literal_cstr(owner), quote_literal_cstr(name))
             : errhint("CREATE SERVER %s delivers them. Else move or delete them, or take another name.",
                       quote_identifier(owner))));
  forget(name);
}

bool sink_rename_is_recorded(const char *old_name, const char *new_name) {
  static OwnerSql sql = {"SELECT FROM outbox_internal.renamed_sinks WHERE old_name OPERATOR(pg_catalog.=) $1 AND "
                         "new_name OPERATOR(pg_catalog.=) $2",
                         2, TYPES, NULL};
  Datum names[] = {CStringGetTextDatum(old_name), CStringGetTextDatum(new_name)};

  OwnerScope scope = owner_enter();
  bool recorded = owner_execute(&sql, names, NULL) > 0;
  owner_leave(scope);
  return recorded;
}

void sink_rename_record(const char *old_name, const char *new_name) {
  static OwnerSql update_names = {
      "UPDATE outbox_internal.renamed_sinks SET new_name = $2 WHERE new_name OPERATOR(pg_catalog.=) $1", 2, TYPES,
      NULL};
  static OwnerSql insert_name = {"INSERT INTO outbox_internal.renamed_sinks (old_name, new_name) VALUES ($1, $2)", 2,
                                 TYPES, NULL};
  Datum names[] = {CStringGetTextDatum(old_name), CStringGetTextDatum(new_name)};

  if (!sink_rename_is_recorded(new_name, old_name)) /* else it gets its own former name back */
    sink_rename_claim(new_name);
  forget(new_name);
  OwnerScope scope = owner_enter();
  owner_execute(&update_names, names, NULL);
  owner_execute(&insert_name, names, NULL);
  owner_leave(scope);
}
