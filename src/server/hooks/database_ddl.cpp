/*
 * database_ddl.cpp: these commands wait 5 s for sessions to leave, so the workers of the database are asked to
 * leave before. SIGTERM also ends a worker's statement that waits for a lock: DROP DATABASE beside a user's LOCK
 * TABLE took up to 6 s.
 */
#include "server/hooks/database_ddl.h"

#include "server/base/fault_point.h"
#include "server/catalog/definition_guard.h"
#include "server/catalog/sink_ddl.h"
#include "server/hooks/extension_drop.h"
#include "server/hooks/restored_day.h"
#include "server/shmem/shared_state.h"

extern "C" {
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/wait_event.h"
}

static ProcessUtility_hook_type previous_hook = NULL;
static bool database_changed = false; /* this transaction changes pg_database */

/* The database that must have no sessions for the command, or NULL. */
static const char *exclusive_database(Node *statement) {
  ListCell *cell;

  switch (nodeTag(statement)) {
  case T_DropdbStmt:
    return ((DropdbStmt *)statement)->dbname;
  case T_RenameStmt:
    return ((RenameStmt *)statement)->renameType == OBJECT_DATABASE ? ((RenameStmt *)statement)->subname : NULL;
  case T_CreatedbStmt:
    foreach (cell, ((CreatedbStmt *)statement)->options) {
      DefElem *option = (DefElem *)lfirst(cell);
      if (strcmp(option->defname, "template") == 0 && option->arg != NULL)
        return defGetString(option);
    }
    return NULL; /* template1: workers never connect to templates */
  case T_AlterDatabaseStmt:
    foreach (cell, ((AlterDatabaseStmt *)statement)->options)
      if (strcmp(((DefElem *)lfirst(cell))->defname, "tablespace") == 0)
        return ((AlterDatabaseStmt *)statement)->dbname;
    return NULL;
  default:
    return NULL;
  }
}

/* At the end of the transaction: before it, the launcher sees the former pg_database. */
static void at_end_of_transaction(XactEvent event, void *) {
  SharedState *shared = shared_state();

  if (!database_changed || (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE))
    return;
  database_changed = false;
  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  for (int i = 0; i < OUTBOX_MAX_DATABASES; i++)
    if (shared->databases[i].blocked_by_ddl_pid == MyProcPid)
      shared->databases[i].blocked_by_ddl_pid = 0;
  shared->rescan = true;
  LWLockRelease(shared->lock);
  shared_wake_launcher();
}

/* Stops the workers of the database and waits for their exit, at most 10 s. After that the command's own error
 * reports the remaining sessions. */
static void stop_workers_and_wait(Oid database) {
  SharedState *shared = shared_state();

  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  DatabaseSlot *slot = shared_database(database, true);
  if (slot)
    slot->blocked_by_ddl_pid = MyProcPid;
  LWLockRelease(shared->lock);

  for (int i = 0; i < 1000 && shared_stop_workers(database) > 0; i++) {
    CHECK_FOR_INTERRUPTS();
    (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10, PG_WAIT_EXTENSION);
    ResetLatch(MyLatch);
  }
}

static void process_utility(PlannedStmt *planned, const char *query, bool read_only_tree,
                            ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *environment,
                            DestReceiver *destination, QueryCompletion *completion) {
  ProcessUtility_hook_type next = previous_hook ? previous_hook : standard_ProcessUtility;
  const char *name = exclusive_database(planned->utilityStmt);
  Oid database = name ? get_database_oid(name, true) : InvalidOid;

  /* The command may add a database, or change whether a database is a template or allows connections. */
  if (IsA(planned->utilityStmt, CreatedbStmt) || IsA(planned->utilityStmt, AlterDatabaseStmt))
    database_changed = true;
  /* Only the database's owner may stop its workers. (Other roles may copy a template, to which no worker connects.)
   */
  if (OidIsValid(database) && outbox_owns_database(database, GetUserId())) {
    database_changed = true;
    stop_workers_and_wait(database);
  }
  definition_guard_statement(planned->utilityStmt);
  if (restored_day_concerns(planned->utilityStmt))
    restored_day_make_room(planned->utilityStmt);
  const DroppedEvents dropped = extension_drop_count(planned->utilityStmt);
  OUTBOX_FAULT_POINT("ddl.before");
  next(planned, query, read_only_tree, context, params, environment, destination, completion);
  OUTBOX_FAULT_POINT("ddl.done");
  extension_drop_warn(&dropped);
  sink_ddl_apply();
}

void database_ddl_init(void) {
  previous_hook = ProcessUtility_hook;
  ProcessUtility_hook = process_utility;
  RegisterXactCallback(at_end_of_transaction, NULL);
}
