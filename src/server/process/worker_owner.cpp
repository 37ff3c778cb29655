/*
 * worker_owner.cpp: the worker's process belongs to the bootstrap superuser. Where the owner is no superuser the
 * context is restricted (SECURITY_RESTRICTED_OPERATION), as autovacuum does it.
 */
#include "server/process/worker_owner.h"

#include "server/storage/owner_sql.h"

extern "C" {
#include "access/xact.h"
#include "commands/trigger.h"
#include "utils/guc.h"
}

static Oid session_user;
static int nest_level;

void worker_owner_enter(void) {
  Assert(IsTransactionState());
  Oid owner = outbox_owner_oid();

  session_user = GetUserId();
  nest_level = NewGUCNestLevel();
  /* Code of an owner who is no superuser must not change the session beyond the transaction. */
  SetUserIdAndSecContext(owner, superuser_arg(owner) ? 0
                                                     : SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION |
                                                           SECURITY_NOFORCE_RLS);
}

void worker_owner_leave_settings(void) {
  Assert(IsTransactionState());
  AfterTriggerFireDeferred(); /* now, not in the commit: they may change settings too */
  AtEOXact_GUC(false, nest_level);
}

void worker_owner_leave(void) {
  Assert(!IsTransactionState());
  SetUserIdAndSecContext(session_user, 0);
}
