/*
 * database_ddl.cpp: these commands wait 5 s for sessions to leave, so the workers of the database are asked to
 * leave before. SIGTERM also ends a worker's statement that waits for a lock: DROP DATABASE beside a user's LOCK
 * TABLE took up to 6 s.
 */
#include "server/hooks/database_ddl.h"

#include "server/catalog/sink_ddl.h"
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
static bool marked = false; /* this transaction changes pg_database */

/* The database that the command needs to be alone with, or NULL. */
static const char *database_to_leave(Node *statement) {
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
    return NULL; /* template1: we never connect to templates */
  case T_AlterDatabaseStmt:
    foreach (cell, ((AlterDatabaseStmt *)statement)->options)
      if (strcmp(((DefElem *)lfirst(cell))->defname, "tablespace") == 0)
        return ((AlterDatabaseStmt *)statement)->dbname;
    return NULL;
  default:
    return NULL;
  }
}

/* Not before the transaction has ended: until then the launcher sees pg_database as it was. */
static void at_end_of_transaction(XactEvent event, void *) {
  SharedState *shared = shared_state();

  if (!marked || (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE))
    return;
  marked = false;
  LWLockAcquire(shared->lock, LW_EXCLUSIVE);
  for (int i = 0; i < OUTBOX_MAX_DATABASES; i++)
    if (shared->databases[i].blocked_by_ddl_pid == MyProcPid)
      shared->databases[i].blocked_by_ddl_pid = 0;
  shared->rescan = true;
  LWLockRelease(shared->lock);
  shared_wake_launcher();
}

/* Sends the workers of the database away and waits until they are gone, ten seconds at most: then the command
 * itself says who is in the way. */
static void stand_aside(Oid database) {
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
  const char *name = database_to_leave(planned->utilityStmt);
  Oid database = name ? get_database_oid(name, true) : InvalidOid;

  /* A new one, or one that becomes a template, takes connections no longer, or the reverse. */
  if (IsA(planned->utilityStmt, CreatedbStmt) || IsA(planned->utilityStmt, AlterDatabaseStmt))
    marked = true;
  /* Only the owner may make a worker pause. (Others may copy a template, where no worker ever connects.) */
  if (OidIsValid(database) && outbox_owns_database(database, GetUserId())) {
    marked = true;
    stand_aside(database);
  }
  if (restored_day_concerns(planned->utilityStmt))
    restored_day_make_room(planned->utilityStmt);
  next(planned, query, read_only_tree, context, params, environment, destination, completion);
  sink_ddl_apply();
}

void database_ddl_init(void) {
  previous_hook = ProcessUtility_hook;
  ProcessUtility_hook = process_utility;
  RegisterXactCallback(at_end_of_transaction, NULL);
}
