/*
 * owner_sql.cpp: every name is qualified and operators are written OPERATOR(pg_catalog.=), because the statements
 * run with the caller's search_path; setting one per call would cost each INSERT.
 */
#include "server/storage/owner_sql.h"

#include "server/storage/plan_settings.h"

extern "C" {
#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "jit/jit.h"
#include "optimizer/cost.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"
#include "utils/syscache.h"
}

#include "server/shmem/wake.h"

static Oid events_oid, pending_oid, owner_oid, sequence_oid;
static bool oids_valid = false;

static void invalidate_oids(Datum, Oid relation) {
  if (relation == InvalidOid || relation == events_oid || relation == pending_oid || relation == sequence_oid)
    oids_valid = false;
}

static void look_up_oids(void) {
  static bool registered = false;

  Assert(IsTransactionState());
  if (oids_valid)
    return;
  if (!registered) {
    CacheRegisterRelcacheCallback(invalidate_oids, (Datum)0);
    registered = true;
  }
  Oid schema = get_namespace_oid("outbox", false);
  events_oid = get_relname_relid("events", schema);
  pending_oid = get_relname_relid("events_pending", schema);
  sequence_oid = get_relname_relid("events_position", schema);
  HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(events_oid));
  if (!HeapTupleIsValid(tuple) || !OidIsValid(pending_oid) || !OidIsValid(sequence_oid))
    ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("the tables of extension \"outbox\" are missing"),
                    errhint("CREATE EXTENSION outbox;")));
  owner_oid = ((Form_pg_class)GETSTRUCT(tuple))->relowner;
  ReleaseSysCache(tuple);
  oids_valid = true;
}

Oid outbox_events_oid(void) {
  look_up_oids();
  return events_oid;
}

Oid outbox_pending_oid(void) {
  look_up_oids();
  return pending_oid;
}

Oid outbox_sequence_oid(void) {
  look_up_oids();
  return sequence_oid;
}

Oid outbox_owner_oid(void) {
  look_up_oids();
  return owner_oid;
}

void hold_sink_names(void) {
  LockRelationOid(outbox_pending_oid(), RowShareLock);
}

bool is_owner(Oid role) {
  look_up_oids();
  return has_privs_of_role(role, owner_oid);
}

OwnerScope owner_enter(void) {
  OwnerScope scope;

  look_up_oids();
  if (SPI_connect() != SPI_OK_CONNECT)
    elog(ERROR, "SPI_connect failed");
  GetUserIdAndSecContext(&scope.user, &scope.context);
  /* Row security restricts users' queries of the table. The extension's own statements must see all rows. */
  SetUserIdAndSecContext(owner_oid, scope.context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_NOFORCE_RLS);
  return scope;
}

void owner_leave(OwnerScope scope) {
  Assert(in_spi());
  SetUserIdAndSecContext(scope.user, scope.context);
  SPI_finish();
}

/* Makes the statement's plan if there is no valid one. A plan that is made while the table is empty, as it normally
 * is, would be a sequential scan, and would read all rows of a large transaction for each of its events. The settings
 * are changed for the planner alone: users' triggers in the statement keep theirs. */
static void plan_by_index(SPIPlanPtr plan) {
#define SAVE(setting, variable, value, c_value) const auto before_##setting = variable;
  OUTBOX_PLAN_SETTINGS(SAVE)
#define SET(setting, variable, value, c_value) variable = c_value;
  OUTBOX_PLAN_SETTINGS(SET)
  PG_TRY();
  {
    if (CachedPlan *cached = SPI_plan_get_cached_plan(plan))
      ReleaseCachedPlan(cached, CurrentResourceOwner);
  }
  PG_FINALLY();
  {
#define RESTORE(setting, variable, value, c_value) variable = before_##setting;
    OUTBOX_PLAN_SETTINGS(RESTORE)
  }
  PG_END_TRY();
#undef SAVE
#undef SET
#undef RESTORE
}

/* The INSERTs of single rows begin with this word. They read nothing. */
static bool may_scan(const Statement *statement) {
  return strncmp(statement->sql, "INSERT", 6) != 0;
}

SPIPlanPtr owner_plan(Statement *statement) {
  Assert(in_spi());
  if (statement->plan == NULL) {
    /* Custom plans would gain nothing: the best plan does not depend on the values. */
    SPIPlanPtr plan = SPI_prepare_cursor(statement->sql, statement->n_args, const_cast<Oid *>(statement->args),
                                         CURSOR_OPT_GENERIC_PLAN);
    if (plan == NULL)
      elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
    SPI_keepplan(plan);
    statement->plan = plan;
  }
  if (may_scan(statement))
    plan_by_index(statement->plan);
  return statement->plan;
}

uint64 owner_execute(Statement *statement, Datum *values, const char *nulls) {
  Assert(in_spi());
  int result = SPI_execute_plan(owner_plan(statement), values, nulls, false, 0);
  if (result < 0)
    elog(ERROR, "SPI_execute_plan failed: %s", SPI_result_code_string(result));
  return SPI_processed;
}

void queue_rescan(int64 position) {
  Assert(IsTransactionState());
  static Statement insert =
      make_statement<INT8OID>("INSERT INTO outbox_internal.rescan_queue (position) VALUES ($1)");
  Datum values[] = {Int64GetDatum(position)};

  OwnerScope scope = owner_enter();
  owner_execute(&insert, values, NULL);
  owner_leave(scope);
  request_rescan_at_commit();
}
