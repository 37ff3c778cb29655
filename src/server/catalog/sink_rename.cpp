/*
 * sink_rename.cpp: rewrites the sink's rows in the transaction of the RENAME, so that no row has a name that another
 * server may get. Delivered events that are kept are history, and keep theirs.
 *
 * The lock of both tables makes sure that every row is rewritten: a transaction that has enqueued ends before, and
 * one that waits for the lock finds the new name in the catalog when it gets it. Everybody waits meanwhile, so the
 * number of rows and the time for the lock are limited.
 */
#include "server/catalog/sink_rename.h"

#include "server/base/own_change.h"
#include "server/storage/owner_sql.h"

extern "C" {
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
}

/* On two busy cores 100,000 events of 300 bytes take 3.2 s (2.7 of CPU) and 150 MB of WAL, a million 41 s and 1.5 GB.
 */
static const int MAX_ROWS = 100000;
static const char *const LOCK_TIMEOUT = "5s"; /* unless the session has a lock_timeout */

/* The pending rows whose sink is $1: three parts, because each has an index. */
#define PENDING_ROWS(columns)                                                                                        \
  "SELECT " columns " FROM outbox.events_pending AS e WHERE e.available_at IS NULL "                                 \
  "AND e.sink OPERATOR(pg_catalog.=) $1 UNION ALL "                                                                  \
  "SELECT " columns " FROM outbox.events_pending AS e WHERE e.available_at IS NOT NULL AND e.blocked_by IS NULL "    \
  "AND e.sink OPERATOR(pg_catalog.=) $1 UNION ALL "                                                                  \
  "SELECT " columns " FROM outbox.events_pending AS e WHERE e.available_at IS NOT NULL "                             \
  "AND e.blocked_by IS NOT NULL AND e.sink OPERATOR(pg_catalog.=) $1"

/* Waits for one table only while it has not locked the other: others lock them in either order, and there must be no
 * deadlock. */
static void lock_tables(void) {
  const Oid tables[] = {outbox_pending_oid(), get_relname_relid("events_failed", get_namespace_oid("outbox", false))};

  for (int first = 0;; first = 1 - first) {
    CHECK_FOR_INTERRUPTS();
    LockRelationOid(tables[first], ExclusiveLock);
    if (ConditionalLockRelationOid(tables[1 - first], ExclusiveLock))
      return;
    UnlockRelationOid(tables[first], ExclusiveLock);
  }
}

[[noreturn]] static void report_no_lock(const char *sink) {
  ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE), errmsg("sink \"%s\" cannot be renamed now", sink),
                  errdetail("A transaction that has written or locked events is open. To wait longer for it would "
                            "keep all others from enqueuing."),
                  errhint("Try again when it has ended: SELECT pid, mode FROM pg_locks WHERE relation = "
                          "'outbox.events_pending'::regclass; without a pid it is prepared: SELECT gid FROM "
                          "pg_prepared_xacts; to wait longer: SET lock_timeout.")));
  pg_unreachable();
}

static void lock_events(const char *sink) {
  MemoryContext caller = CurrentMemoryContext;
  const int level = NewGUCNestLevel();

  if (LockTimeout == 0)
    (void)set_config_option("lock_timeout", LOCK_TIMEOUT, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
                            false);
  PG_TRY();
  { lock_tables(); }
  PG_CATCH();
  {
    if (geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
      PG_RE_THROW();
    MemoryContextSwitchTo(caller);
    FlushErrorState();
    report_no_lock(sink);
  }
  PG_END_TRY();
  AtEOXact_GUC(true, level);
}

/* Runs it with a snapshot of its own: that of a REPEATABLE READ transaction may be older than the lock. Returns the
 * number of rows. In SPI. */
static uint64 run(Statement *sql, Datum *values) {
  const int result =
      SPI_execute_snapshot(owner_plan(sql), values, NULL, GetLatestSnapshot(), InvalidSnapshot, false, true, 0);

  if (result < 0)
    elog(ERROR, "SPI_execute_snapshot failed: %s", SPI_result_code_string(result));
  return SPI_processed;
}

/* The number of pending events and dead letters with this name, at most `most`. In SPI. */
static int64 count_rows(const char *name, int64 most) {
  static Statement count = make_statement<TEXTOID, INT8OID>(
      "SELECT FROM (" PENDING_ROWS("") " UNION ALL SELECT FROM outbox.events_failed AS e "
                                       "WHERE e.sink OPERATOR(pg_catalog.=) $1) AS r LIMIT $2");
  Datum values[] = {CStringGetTextDatum(name), Int64GetDatum(most)};

  return (int64)run(&count, values);
}

static void check_rows(const char *old_name, const char *new_name) {
  if (count_rows(new_name, 1) > 0)
    ereport(
        ERROR,
        (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
         errmsg("events of a dropped sink have the name \"%s\"", new_name),
         errdetail("The renamed sink would get these pending events and dead letters."),
         errhint("If it is to have them: UPDATE outbox.events SET sink = %s WHERE sink = %s AND status <> 'SENT'; "
                 "else delete them, or take another name.",
                 quote_literal_cstr(old_name), quote_literal_cstr(new_name))));
  if (count_rows(old_name, MAX_ROWS + 1) > MAX_ROWS)
    ereport(ERROR,
            (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
             errmsg("sink \"%s\" has too many events to be renamed", old_name),
             errdetail("It has more than %d pending events and dead letters. A RENAME writes each of them, and "
                       "nothing can be enqueued meanwhile.",
                       MAX_ROWS),
             errhint("Wait until its events are delivered; redrive or delete its dead letters.")));
}

/* As the server's own changes: the event was checked when it was enqueued, and what is known about its order stays.
 */
static void rewrite_rows(const char *old_name, const char *new_name) {
  static Statement pending =
      make_statement<TEXTOID, TEXTOID>("UPDATE outbox.events_pending SET sink = $2 WHERE ctid OPERATOR(pg_catalog.=) "
                                       "ANY (ARRAY(" PENDING_ROWS("e.ctid") "))");
  static Statement failed = make_statement<TEXTOID, TEXTOID>(
      "UPDATE outbox.events_failed SET sink = $2 WHERE sink OPERATOR(pg_catalog.=) $1");
  Datum names[] = {CStringGetTextDatum(old_name), CStringGetTextDatum(new_name)};
  const int before = own_changes_begin();

  PG_TRY();
  {
    run(&pending, names);
    run(&failed, names);
  }
  PG_FINALLY();
  { own_changes_end(before); }
  PG_END_TRY();
}

/* What operators were told of the sink stays told. */
static void rename_conditions(const char *old_name, const char *new_name) {
  static Statement of_dropped_sink =
      make_statement<TEXTOID, TEXTOID>("DELETE FROM outbox_internal.conditions WHERE sink OPERATOR(pg_catalog.=) $2");
  static Statement conditions = make_statement<TEXTOID, TEXTOID>(
      "UPDATE outbox_internal.conditions SET sink = $2 WHERE sink OPERATOR(pg_catalog.=) $1");
  Datum names[] = {CStringGetTextDatum(old_name), CStringGetTextDatum(new_name)};

  run(&of_dropped_sink, names);
  run(&conditions, names);
}

void sink_rename_rows(const char *old_name, const char *new_name) {
  lock_events(old_name);
  OwnerScope scope = owner_enter();
  check_rows(old_name, new_name);
  rewrite_rows(old_name, new_name);
  rename_conditions(old_name, new_name);
  owner_leave(scope);
}

int64 sink_pending_rows(const char *name) {
  static Statement count = make_statement<TEXTOID>("SELECT pg_catalog.count(*) FROM (" PENDING_ROWS("") ") AS r");
  Datum value = CStringGetTextDatum(name);
  bool is_null;

  OwnerScope scope = owner_enter();
  owner_execute(&count, &value, NULL);
  int64 n = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &is_null));
  owner_leave(scope);
  return n;
}
