/*
 * extension_drop.cpp: DROP EXTENSION needs no CASCADE to drop the tables, and PostgreSQL names no row that is lost
 * with them. The events are counted before the command, under the lock that it takes itself: so no worker delivers
 * meanwhile, and two such commands do not wait for each other's locks of the tables.
 */
#include "server/hooks/extension_drop.h"

#include "server/storage/owner_sql.h"

extern "C" {
#include "catalog/namespace.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
}

/* To count more would take seconds. */
#define MAX_COUNTED 1000000

static bool drops_outbox(Node *statement) {
  ListCell *cell;

  if (!IsA(statement, DropStmt) || ((DropStmt *)statement)->removeType != OBJECT_EXTENSION)
    return false;
  foreach (cell, ((DropStmt *)statement)->objects)
    if (strcmp(strVal(lfirst(cell)), "outbox") == 0)
      return true;
  return false;
}

/* An extension without them, broken or of another version, can be dropped too. */
static bool tables_exist(void) {
  Oid schema = get_namespace_oid("outbox", true);

  return OidIsValid(schema) && OidIsValid(get_relname_relid("events", schema)) &&
         OidIsValid(get_relname_relid("events_pending", schema)) &&
         OidIsValid(get_relname_relid("events_failed", schema)) &&
         OidIsValid(get_relname_relid("events_position", schema));
}

static int64 counted(int column) {
  bool isnull;

  return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column, &isnull));
}

DroppedEvents extension_drop_count(Node *statement) {
  static Statement count = make_statement<>(
      "SELECT (SELECT pg_catalog.count(*) FROM (SELECT FROM outbox.events_pending LIMIT " CppAsString2(
          MAX_COUNTED) ") AS p), (SELECT pg_catalog.count(*) FROM (SELECT FROM outbox.events_failed "
                       "LIMIT " CppAsString2(MAX_COUNTED) ") AS f)");
  DroppedEvents events = {0, 0};
  Oid extension = drops_outbox(statement) ? get_extension_oid("outbox", true) : InvalidOid;

  if (!OidIsValid(extension) || !tables_exist() || !is_owner(GetUserId()))
    return events;
  LockDatabaseObject(ExtensionRelationId, extension, 0, AccessExclusiveLock);
  if (get_extension_oid("outbox", true) != extension) /* another session has dropped it meanwhile */
    return events;
  OwnerScope scope = owner_enter();
  owner_execute(&count, NULL, NULL);
  events.pending = counted(1);
  events.dead_letters = counted(2);
  owner_leave(scope);
  return events;
}

void extension_drop_warn(const DroppedEvents *events) {
  if (events->pending + events->dead_letters == 0)
    return;
  ereport(WARNING, (errmsg("DROP EXTENSION deletes events that were not delivered"),
                    errdetail("Pending events: " INT64_FORMAT "%s; dead letters: " INT64_FORMAT "%s.",
                              events->pending, events->pending == MAX_COUNTED ? " or more" : "", events->dead_letters,
                              events->dead_letters == MAX_COUNTED ? " or more" : ""),
                    errhint("A transaction block can still be rolled back. Elsewhere they are gone.")));
}
