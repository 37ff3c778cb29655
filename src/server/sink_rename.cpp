#include "sink_rename.h"

#include "owner_sql.h"
#include "wrappers.h"

extern "C" {
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "foreign/foreign.h"
#include "nodes/value.h"
#include "utils/builtins.h"
}

bool is_sink(const char *server) {
  ForeignServer *found = GetForeignServerByName(server, true);
  char kind[NAMEDATALEN];

  return found && wrapper_kind(found->fdwid, kind);
}

bool sink_rename_concerns(Node *statement) {
  if (IsA(statement, CreateForeignServerStmt))
    return true;
  return IsA(statement, RenameStmt) && ((RenameStmt *)statement)->renameType == OBJECT_FOREIGN_SERVER &&
         is_sink(strVal(((RenameStmt *)statement)->object));
}

void sink_rename_note(Node *statement) {
  static const Oid types[] = {TEXTOID, TEXTOID};
  /* A name that is a sink's own leads nowhere else. */
  static OwnerSql claim = {"DELETE FROM outbox.renamed_sinks WHERE old_name OPERATOR(pg_catalog.=) $1", 1, types,
                           NULL};
  static OwnerSql follow = {"UPDATE outbox.renamed_sinks SET new_name = $2 WHERE new_name OPERATOR(pg_catalog.=) $1",
                            2, types, NULL};
  static OwnerSql note = {"INSERT INTO outbox.renamed_sinks (old_name, new_name) VALUES ($1, $2)", 2, types, NULL};
  bool renamed = IsA(statement, RenameStmt);
  char *name = renamed ? ((RenameStmt *)statement)->newname : ((CreateForeignServerStmt *)statement)->servername;

  if (!is_sink(name))
    return;
  Datum new_name = CStringGetTextDatum(name);
  OwnerScope scope = owner_enter();
  owner_execute(&claim, &new_name, NULL);
  if (renamed) {
    Datum names[] = {CStringGetTextDatum(strVal(((RenameStmt *)statement)->object)), new_name};
    owner_execute(&follow, names, NULL);
    owner_execute(&note, names, NULL);
  }
  owner_leave(scope);
}
