/*
 * worker_owner.cpp: the worker's process belongs to the bootstrap superuser. Where the owner is no superuser the
 * context is restricted (SECURITY_RESTRICTED_OPERATION), as autovacuum does it.
 */
#include "server/process/worker_owner.h"

#include "server/storage/owner_sql.h"

extern "C" {
#include "access/xact.h"
#include "utils/guc.h"
}

static Oid self;
static int nest_level;

void worker_owner_enter(void) {
  Assert(IsTransactionState());
  Oid owner = outbox_owner_oid();

  self = GetUserId();
  nest_level = NewGUCNestLevel();
  /* A superuser's code may do as it likes; other users' must leave nothing behind in this session either. */
  SetUserIdAndSecContext(owner, superuser_arg(owner) ? 0
                                                     : SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION |
                                                           SECURITY_NOFORCE_RLS);
}

void worker_owner_leave_settings(void) {
  Assert(IsTransactionState());
  AtEOXact_GUC(false, nest_level);
}

void worker_owner_leave(void) {
  Assert(!IsTransactionState());
  SetUserIdAndSecContext(self, 0);
}
