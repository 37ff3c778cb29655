/*
 * prepared.cpp: COMMIT PREPARED cannot know the writes of the prepared transaction, so it wakes the workers as if the
 * transaction had enqueued events and changed rows and sinks.
 */
#include "server/hooks/prepared.h"

#include "server/base/fault_point.h"
#include "server/shmem/shared_state.h"
#include "server/shmem/wake.h"

extern "C" {
#include "commands/extension.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
}

static ProcessUtility_hook_type previous_hook = NULL;

/* Announces an extension whose CREATE EXTENSION was prepared: the prepared transaction itself could not. */
static void announce_extension(void) {
  LWLockAcquire(shared_state()->lock, LW_SHARED);
  DatabaseSlot *slot = shared_database(MyDatabaseId, false);
  bool none_known = slot != NULL && slot->state == DATABASE_NO_OUTBOX;
  LWLockRelease(shared_state()->lock);
  if (none_known && OidIsValid(get_extension_oid("outbox", true)))
    wake_launcher_at_commit();
}

static void process_utility(PlannedStmt *planned, const char *query, bool read_only_tree,
                            ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *environment,
                            DestReceiver *destination, QueryCompletion *completion) {
  ProcessUtility_hook_type next = previous_hook ? previous_hook : standard_ProcessUtility;
  Node *statement = planned->utilityStmt;
  bool commits =
      IsA(statement, TransactionStmt) && ((TransactionStmt *)statement)->kind == TRANS_STMT_COMMIT_PREPARED;

  next(planned, query, read_only_tree, context, params, environment, destination, completion);
  if (commits) {
    OUTBOX_FAULT_POINT("prepared.committed");
    request_rescan_at_commit(); /* this statement's own transaction ends after the prepared one */
    announce_extension();
  }
}

void prepared_init(void) {
  previous_hook = ProcessUtility_hook;
  ProcessUtility_hook = process_utility;
}
