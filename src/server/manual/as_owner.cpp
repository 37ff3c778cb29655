/*
 * as_owner.cpp: outbox.claim(), ack() and nack() as their callers see them. Each calls the SQL function of
 * outbox_internal of the same name with "_for" appended, as the owner of the tables, and passes the caller's role: in
 * a SECURITY DEFINER function no SQL expression knows it. The triggers treat changes of events made there as the
 * server's own: no worker reads the row again, and delivery of an event does not free its dedup key.
 */
#include "server/base/sql_function.h"
#include "server/base/own_change.h"
#include "server/storage/owner_sql.h"

extern "C" {
#include "miscadmin.h"
#include "nodes/value.h"
#include "parser/parse_func.h"
#include "tcop/utility.h"
#include "utils/lsyscache.h"
}

/* As the owner: it needs USAGE on the schema. */
static Oid find_function(const char *name, const Oid *types, int n) {
  char *schema = pstrdup("outbox_internal"), *whole = psprintf("%s_for", name);
  Oid with_caller[FUNC_MAX_ARGS] = {OIDOID};

  memcpy(with_caller + 1, types, sizeof(Oid) * n);
  return LookupFuncName(list_make2(makeString(schema), makeString(whole)), n + 1, with_caller, false);
}

SQL_FUNCTION(outbox_as_owner) {
  LOCAL_FCINFO(call, FUNC_MAX_ARGS);
  FmgrInfo function;
  Oid caller, *types;
  int context, n;
  volatile Datum result = (Datum)0;

  const char *name = get_func_name(fcinfo->flinfo->fn_oid);
  const char *command = psprintf("outbox.%s()", name);
  PreventCommandDuringRecovery(command);
  PreventCommandIfReadOnly(command);
  PreventCommandIfParallelMode(command);
  hold_sink_names();
  (void)get_func_signature(fcinfo->flinfo->fn_oid, &types, &n);
  GetUserIdAndSecContext(&caller, &context);
  /* Row security is for those who look at the table. An error restores the role with its transaction. */
  SetUserIdAndSecContext(outbox_owner_oid(), context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_NOFORCE_RLS);
  fmgr_info(find_function(name, types, n), &function);
  InitFunctionCallInfoData(*call, &function, (short)(n + 1), fcinfo->fncollation, NULL, fcinfo->resultinfo);
  call->args[0] = {ObjectIdGetDatum(caller), false};
  memcpy(call->args + 1, fcinfo->args, sizeof(NullableDatum) * n);
  const int before = own_changes_begin();
  PG_TRY();
  { result = FunctionCallInvoke(call); }
  PG_FINALLY();
  { own_changes_end(before); }
  PG_END_TRY();
  SetUserIdAndSecContext(caller, context);
  fcinfo->isnull = call->isnull;
  return result;
}
