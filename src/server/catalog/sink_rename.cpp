/*
 * sink_rename.cpp: the former name goes into outbox_internal.renamed_sinks, by which rows find their sink, also rows
 * of transactions that commit later. Only rows that wait for a time are rewritten.
 */
#include "server/catalog/sink_rename.h"

#include "server/storage/owner_sql.h"

extern "C" {
#include "catalog/pg_type.h"
#include "utils/builtins.h"
}

static const Oid TYPES[] = {TEXTOID, TEXTOID};

void sink_rename_claim(const char *name) {
  static OwnerSql claim = {"DELETE FROM outbox_internal.renamed_sinks WHERE old_name OPERATOR(pg_catalog.=) $1", 1,
                           TYPES, NULL};
  Datum datum = CStringGetTextDatum(name);
  OwnerScope scope = owner_enter();

  owner_execute(&claim, &datum, NULL);
  owner_leave(scope);
}

void sink_rename_record(const char *old_name, const char *new_name) {
  static OwnerSql update_names = {
      "UPDATE outbox_internal.renamed_sinks SET new_name = $2 WHERE new_name OPERATOR(pg_catalog.=) $1", 2, TYPES,
      NULL};
  static OwnerSql insert_name = {"INSERT INTO outbox_internal.renamed_sinks (old_name, new_name) VALUES ($1, $2)", 2,
                                 TYPES, NULL};
  Datum names[] = {CStringGetTextDatum(old_name), CStringGetTextDatum(new_name)};

  sink_rename_claim(new_name);
  OwnerScope scope = owner_enter();
  owner_execute(&update_names, names, NULL);
  owner_execute(&insert_name, names, NULL);
  owner_leave(scope);
}
