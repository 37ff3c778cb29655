#include "stopped_sinks.h"

#include "owner_sql.h"
#include "sink_rename.h"
#include "sql_function.h"
#include "wake.h"

extern "C" {
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "nodes/value.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/rel.h"
}

/* An ordinary table tells nobody that it has changed: so its relation is said to have. */
SQL_FUNCTION(outbox_stopped_sinks_changed) {
  if (!CALLED_AS_TRIGGER(fcinfo))
    ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
                    errmsg("function \"stopped_sinks_changed\" must be called as a trigger")));
  CacheInvalidateRelcache(((TriggerData *)fcinfo->context)->tg_relation);
  wake_when_sinks_changed();
  return PointerGetDatum(NULL);
}

/* The server whose options, or whose mapping's, the statement changes; else NULL. */
static const char *altered_server(Node *statement) {
  switch (nodeTag(statement)) {
  case T_AlterForeignServerStmt:
    return ((AlterForeignServerStmt *)statement)->options ? ((AlterForeignServerStmt *)statement)->servername : NULL;
  case T_CreateUserMappingStmt:
    return ((CreateUserMappingStmt *)statement)->servername;
  case T_AlterUserMappingStmt:
    return ((AlterUserMappingStmt *)statement)->servername;
  case T_DropUserMappingStmt:
    return ((DropUserMappingStmt *)statement)->servername;
  default:
    return NULL;
  }
}

static bool drops_sink(Node *statement) {
  ListCell *cell;

  if (!IsA(statement, DropStmt) || ((DropStmt *)statement)->removeType != OBJECT_FOREIGN_SERVER)
    return false;
  foreach (cell, ((DropStmt *)statement)->objects)
    if (is_sink(strVal(lfirst(cell))))
      return true;
  return false;
}

bool stopped_sinks_concerns(Node *statement) {
  const char *altered = altered_server(statement);

  return altered ? is_sink(altered) : sink_rename_concerns(statement) || drops_sink(statement);
}

/* With $1 the sink's name, with $2 its new one. */
#define ON_BOTH(before, after)                                                                                       \
  {before "outbox.stopped_sinks" after, 2, types, NULL}, {                                                           \
    before "outbox.failing_sinks" after, 2, types, NULL                                                              \
  }

void stopped_sinks_note(Node *statement) {
  static const Oid types[] = {TEXTOID, TEXTOID};
  static OwnerSql forget[] = {ON_BOTH("DELETE FROM ", " WHERE sink OPERATOR(pg_catalog.=) $1")};
  static OwnerSql rename[] = {ON_BOTH("UPDATE ", " SET sink = $2 WHERE sink OPERATOR(pg_catalog.=) $1")};
  static OwnerSql tidy[] = {ON_BOTH("DELETE FROM ",
                                    " AS t WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_foreign_server "
                                    "AS s WHERE s.srvname OPERATOR(pg_catalog.=) t.sink)")};
  /* Another endpoint may want what this one did not; a person's pause is a person's to end. */
  static OwnerSql enable = {"DELETE FROM outbox.stopped_sinks WHERE sink OPERATOR(pg_catalog.=) $1 AND state "
                            "OPERATOR(pg_catalog.=) 'disabled'",
                            1, types, NULL};
  const char *altered = altered_server(statement);

  if (IsA(statement, CreateForeignServerStmt) && !is_sink(((CreateForeignServerStmt *)statement)->servername))
    return;
  OwnerScope scope = owner_enter();
  if (altered) {
    Datum name = CStringGetTextDatum(altered);
    owner_execute(&enable, &name, NULL);
  } else if (IsA(statement, DropStmt)) {
    Datum names[] = {CStringGetTextDatum(""), CStringGetTextDatum("")};
    for (OwnerSql &sql : tidy)
      owner_execute(&sql, names, NULL);
  } else {
    bool renamed = IsA(statement, RenameStmt);
    Datum made = CStringGetTextDatum(renamed ? ((RenameStmt *)statement)->newname
                                             : ((CreateForeignServerStmt *)statement)->servername);
    Datum none[] = {made, made};
    for (OwnerSql &sql : forget) /* of a dropped one */
      owner_execute(&sql, none, NULL);
    if (renamed) {
      Datum names[] = {CStringGetTextDatum(strVal(((RenameStmt *)statement)->object)), made};
      for (OwnerSql &sql : rename)
        owner_execute(&sql, names, NULL);
    }
  }
  owner_leave(scope);
}
