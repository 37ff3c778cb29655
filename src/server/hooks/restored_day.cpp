/*
 * restored_day.cpp: a worker cannot tell a database that is being restored from a new one, so it cannot hold back its
 * daily partitions during a restore. The restore itself removes them.
 */
#include "server/hooks/restored_day.h"

#include "server/storage/owner_sql.h"

extern "C" {
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
}

bool restored_day_concerns(Node *statement) {
  if (!IsA(statement, CreateStmt) || ((CreateStmt *)statement)->if_not_exists || creating_extension)
    return false;
  const RangeVar *table = ((CreateStmt *)statement)->relation;
  return table->schemaname != NULL && strcmp(table->schemaname, "outbox") == 0;
}

/* The partitioned table to which the name belongs: outbox.events_sent for events_sent_20260131. */
static Oid parent_by_name(const char *name, Oid schema) {
  char *parent_name = pstrdup(name);
  char *end = strrchr(parent_name, '_');

  if (end == NULL)
    return InvalidOid;
  *end = '\0';
  Oid parent = get_relname_relid(parent_name, schema), extension = get_extension_oid("outbox", true);
  bool is_ours = OidIsValid(parent) && get_rel_relkind(parent) == RELKIND_PARTITIONED_TABLE &&
                 OidIsValid(extension) && getExtensionOfObject(RelationRelationId, parent) == extension;
  return is_ours ? parent : InvalidOid;
}

void restored_day_make_room(Node *statement) {
  const char *name = ((CreateStmt *)statement)->relation->relname;
  Oid schema = get_namespace_oid("outbox", true);
  Oid parent = OidIsValid(schema) ? parent_by_name(name, schema) : InvalidOid;

  if (!OidIsValid(parent) || !is_owner(GetUserId()))
    return;
  /* This lock serializes the creation of partitions: the worker may be about to create the same one. */
  LockRelationOid(parent, ShareUpdateExclusiveLock);
  Oid table = get_relname_relid(name, schema);
  if (!OidIsValid(table) || !get_rel_relispartition(table) || get_partition_parent(table, false) != parent)
    return;
  const char *qualified = quote_qualified_identifier("outbox", name);
  PushActiveSnapshot(GetTransactionSnapshot());
  SPI_connect();
  if (SPI_execute(psprintf("LOCK TABLE %s IN ACCESS EXCLUSIVE MODE", qualified), false, 0) < 0 ||
      SPI_execute(psprintf("SELECT FROM %s LIMIT 1", qualified), false, 1) != SPI_OK_SELECT)
    elog(ERROR, "could not look into %s", qualified);
  if (SPI_processed == 0 && SPI_execute(psprintf("DROP TABLE %s", qualified), false, 0) < 0)
    elog(ERROR, "could not drop %s", qualified);
  SPI_finish();
  PopActiveSnapshot();
}
