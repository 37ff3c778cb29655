/*
 * sink_rename.cpp: no row may have a name that another server may get. Delivered events that are kept are history,
 * and keep theirs.
 *
 * The statement rewrites the rows that its transaction sees. They are locked like rows of any UPDATE: events of this
 * sink wait until the transaction ends, and nobody else does. Transactions that have enqueued and not committed may
 * still add rows of the former name. So when the transaction commits, it locks both tables, rewrites those rows, and
 * ends: a transaction that has enqueued ends before, and one that waits for the lock finds the new name in the
 * catalog when it gets it. A role that may only create sinks therefore stops nobody for longer than a commit takes.
 */
#include "server/catalog/sink_rename.h"

#include "server/base/own_change.h"
#include "server/catalog/rename_lock.h"
#include "server/storage/owner_sql.h"

extern "C" {
#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
}

/* On two busy cores 100,000 events of 300 bytes take 3.2 s (2.7 of CPU) and 150 MB of WAL, a million 41 s and 1.5 GB.
 */
static const int MAX_ROWS = 100000;
static const int DEFAULT_TIMEOUT_MS = 5000;

/* Of this transaction, in order, in TopTransactionContext. */
typedef struct Rename {
  SubTransactionId made_in;
  Oid server;
  NameData committed; /* the server's name before this transaction. Empty: a server of it that took the name over */
  NameData name;      /* from this RENAME on */
} Rename;

static List *renames = NIL;

/* Which rows: those that this transaction has written have names of its own. */
enum class RowsOf { ALL, THIS_TRANSACTION, OTHERS };

/* The pending rows whose sink is $1: three parts, because each has an index. */
#define PENDING_ROWS(columns)                                                                                        \
  "SELECT " columns " FROM outbox.events_pending AS e WHERE e.available_at IS NULL "                                 \
  "AND e.sink OPERATOR(pg_catalog.=) $1 UNION ALL "                                                                  \
  "SELECT " columns " FROM outbox.events_pending AS e WHERE e.available_at IS NOT NULL AND e.blocked_by IS NULL "    \
  "AND e.sink OPERATOR(pg_catalog.=) $1 UNION ALL "                                                                  \
  "SELECT " columns " FROM outbox.events_pending AS e WHERE e.available_at IS NOT NULL "                             \
  "AND e.blocked_by IS NOT NULL AND e.sink OPERATOR(pg_catalog.=) $1"

[[noreturn]] static void report_no_lock(const char *sink) {
  ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE), errmsg("sink \"%s\" cannot be renamed now", sink),
                  errdetail("A transaction that has written or locked events, or renamed a sink, is open."),
                  errhint("Try again when it has ended: SELECT pid, mode FROM pg_locks WHERE relation = "
                          "'outbox.events_pending'::regclass OR classid = 'pg_foreign_server'::regclass; without a "
                          "pid it is prepared: SELECT gid FROM pg_prepared_xacts; to wait longer: SET "
                          "lock_timeout.")));
  pg_unreachable();
}

/* A session may have set it. */
static int timeout_ms(void) {
  return LockTimeout > 0 ? LockTimeout : DEFAULT_TIMEOUT_MS;
}

/* Runs `act`, which may wait for rows that other sessions have locked. */
template <typename Act> static void with_lock_timeout(const char *sink, Act act) {
  MemoryContext caller = CurrentMemoryContext;
  const int level = NewGUCNestLevel();
  char timeout[32];

  snprintf(timeout, sizeof(timeout), "%dms", timeout_ms());
  (void)set_config_option("lock_timeout", timeout, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
  PG_TRY();
  { act(); }
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

[[noreturn]] static void report_too_many(const char *sink) {
  ereport(ERROR,
          (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("sink \"%s\" has too many events to be renamed", sink),
           errdetail("It has more than %d pending events and dead letters. A RENAME writes each of them, and "
                     "they are not delivered meanwhile.",
                     MAX_ROWS),
           errhint("Wait until its events are delivered; redrive or delete its dead letters.")));
  pg_unreachable();
}

static bool was_committed_name(const char *name) {
  ListCell *cell;

  foreach (cell, renames)
    if (strcmp(NameStr(((Rename *)lfirst(cell))->committed), name) == 0)
      return true;
  return false;
}

/* Without a lock, as nothing is rewritten yet. Rows that others have just added for a sink which this transaction has
 * renamed before are not in the way. */
static void check_rows(const char *old_name, const char *new_name) {
  if (!was_committed_name(new_name) && count_rows(new_name, 1) > 0)
    ereport(
        ERROR,
        (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
         errmsg("events of a dropped sink have the name \"%s\"", new_name),
         errdetail("The renamed sink would get these pending events and dead letters."),
         errhint("If it is to have them: UPDATE outbox.events SET sink = %s WHERE sink = %s AND status <> 'SENT'; "
                 "else delete them, or take another name.",
                 quote_literal_cstr(old_name), quote_literal_cstr(new_name))));
  if (count_rows(old_name, MAX_ROWS + 1) > MAX_ROWS)
    report_too_many(old_name);
}

/* ---- rewriting ---- */

/* The rows that `read` returns: their place, and the transaction that wrote them. In SPI. */
static Datum places_of(Statement *read, Datum *name, RowsOf whose, int *n) {
  const int64 rows = (int64)run(read, name);
  ItemPointerData *places = palloc_array(ItemPointerData, Max(rows, 1));
  bool is_null;

  *n = 0;
  for (int64 i = 0; i < rows; i++) {
    HeapTuple row = SPI_tuptable->vals[i];
    const TransactionId writer = DatumGetTransactionId(SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &is_null));
    if (whose == RowsOf::ALL || TransactionIdIsCurrentTransactionId(writer) == (whose == RowsOf::THIS_TRANSACTION))
      places[(*n)++] = *(ItemPointer)DatumGetPointer(SPI_getbinval(row, SPI_tuptable->tupdesc, 1, &is_null));
  }
  return tid_array(places, *n);
}

static void rewrite_table(Statement *read, Statement *write, const char *old_name, const char *new_name,
                          RowsOf whose) {
  Datum values[3] = {CStringGetTextDatum(old_name), CStringGetTextDatum(new_name)};
  int n;

  values[2] = places_of(read, values, whose, &n);
  if (n > 0)
    run(write, values);
}

/* A name that no sink has, for rows of sinks that exchange their names. */
typedef struct Mark {
  char name[NAMEDATALEN + 1];
} Mark;

static Mark mark_of(const char *name) {
  Mark mark;

  snprintf(mark.name, sizeof(mark.name), "\x01%s", name);
  return mark;
}

/* As the server's own changes: the event was checked when it was enqueued, and what is known about its order stays. A
 * row that has changed meanwhile is left alone. In SPI. */
static void rewrite_rows(const char *old_name, const char *new_name, RowsOf whose) {
  static Statement read_pending =
      make_statement<TEXTOID>("SELECT r.ctid, r.xmin FROM (" PENDING_ROWS("e.ctid, e.xmin") ") AS r");
  static Statement read_failed = make_statement<TEXTOID>(
      "SELECT e.ctid, e.xmin FROM outbox.events_failed AS e WHERE e.sink OPERATOR(pg_catalog.=) $1");
  static Statement write_pending = make_statement<TEXTOID, TEXTOID, TIDARRAYOID>(
      "UPDATE outbox.events_pending SET sink = $2 WHERE ctid OPERATOR(pg_catalog.=) ANY ($3) "
      "AND sink OPERATOR(pg_catalog.=) $1");
  static Statement write_unhindered = make_statement<TEXTOID, TEXTOID, TIDARRAYOID>(
      "UPDATE outbox.events_pending AS e SET sink = $2 WHERE e.ctid OPERATOR(pg_catalog.=) ANY ($3) "
      "AND e.sink OPERATOR(pg_catalog.=) $1 AND NOT EXISTS (SELECT FROM outbox.events_pending AS o "
      "WHERE o.id OPERATOR(pg_catalog.=) e.id AND o.sink OPERATOR(pg_catalog.=) $2)");
  static Statement write_failed = make_statement<TEXTOID, TEXTOID, TIDARRAYOID>(
      "UPDATE outbox.events_failed SET sink = $2 WHERE ctid OPERATOR(pg_catalog.=) ANY ($3) "
      "AND sink OPERATOR(pg_catalog.=) $1");
  const int before = own_changes_begin();

  PG_TRY();
  {
    /* Another transaction may have enqueued an event for two sinks that exchange their names: until the commit, the
     * row for the one is in the way of that for the other. */
    const bool is_taken = whose != RowsOf::ALL && was_committed_name(new_name);
    rewrite_table(&read_pending, is_taken ? &write_unhindered : &write_pending, old_name, new_name, whose);
    rewrite_table(&read_failed, &write_failed, old_name, new_name, whose);
  }
  PG_FINALLY();
  { own_changes_end(before); }
  PG_END_TRY();
}

/* An operator who was told of a sink is not told again under its new name. The rows get a mark first, because sinks
 * may exchange their names; then the rows of dropped sinks go. In SPI. */
static void rename_conditions(const char *old_name, const char *new_name) {
  static Statement mark = make_statement<TEXTOID, TEXTOID>(
      "UPDATE outbox_internal.conditions SET sink = $2 WHERE sink OPERATOR(pg_catalog.=) $1");
  Datum names[] = {CStringGetTextDatum(old_name), CStringGetTextDatum(mark_of(new_name).name)};

  run(&mark, names);
}

static void finish_conditions(const char *new_name) {
  static Statement of_dropped_sink =
      make_statement<TEXTOID>("DELETE FROM outbox_internal.conditions WHERE sink OPERATOR(pg_catalog.=) $1");
  static Statement unmark = make_statement<TEXTOID, TEXTOID>(
      "UPDATE outbox_internal.conditions SET sink = $1 WHERE sink OPERATOR(pg_catalog.=) $2");
  Datum names[] = {CStringGetTextDatum(new_name), CStringGetTextDatum(mark_of(new_name).name)};

  run(&of_dropped_sink, names);
  run(&unmark, names);
}

/* ---- the statement ---- */

static const Rename *last_rename(Oid server) {
  const Rename *last = NULL;
  ListCell *cell;

  foreach (cell, renames)
    if (((Rename *)lfirst(cell))->server == server)
      last = (Rename *)lfirst(cell);
  return last;
}

static const Rename *note(Oid server, const char *old_name, const char *new_name) {
  const Rename *last = last_rename(server);
  MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);
  Rename *rename = palloc0_object(Rename);

  rename->made_in = GetCurrentSubTransactionId();
  rename->server = server;
  namestrcpy(&rename->committed, last ? NameStr(last->committed) : was_committed_name(old_name) ? "" : old_name);
  namestrcpy(&rename->name, new_name);
  renames = lappend(renames, rename);
  MemoryContextSwitchTo(caller);
  return rename;
}

/* A row that another transaction's row hinders gets a mark until the commit. */
static void rewrite_own(const char *old_name, const char *new_name) {
  rewrite_rows(old_name, new_name, RowsOf::THIS_TRANSACTION);
  if (was_committed_name(new_name))
    rewrite_rows(old_name, mark_of(new_name).name, RowsOf::THIS_TRANSACTION);
}

static void rewrite_visible(const char *committed, const char *old_name, const char *new_name) {
  if (committed[0] != '\0' && strcmp(committed, new_name) != 0)
    rewrite_rows(committed, new_name, RowsOf::OTHERS);
  rewrite_own(old_name, new_name);
  rewrite_own(mark_of(old_name).name, new_name);
}

void sink_rename_rows(Oid server, const char *old_name, const char *new_name) {
  with_lock_timeout(old_name, [=] {
    /* One RENAME after the other: at its commit each would wait for the other's rows. */
    LockDatabaseObject(ForeignServerRelationId, InvalidOid, 0, ExclusiveLock);
    OwnerScope scope = owner_enter();
    check_rows(old_name, new_name);
    const Rename *rename = note(server, old_name, new_name);
    rewrite_visible(NameStr(rename->committed), old_name, new_name);
    owner_leave(scope);
  });
}

/* ---- the commit ---- */

/* Calls it for each server with its name before the transaction and the one it has now. */
static void for_each_sink(void (*act)(const char *committed, const char *name)) {
  ListCell *cell;

  foreach (cell, renames) {
    const Rename *rename = (Rename *)lfirst(cell);
    if (rename == last_rename(rename->server) && NameStr(rename->committed)[0] != '\0' &&
        strcmp(NameStr(rename->committed), NameStr(rename->name)) != 0)
      act(NameStr(rename->committed), NameStr(rename->name));
  }
}

static void rewrite_others(const char *committed, const char *name) {
  rewrite_rows(committed, name, RowsOf::OTHERS);
}

/* With the tables locked, so that each row that was in the way of another gets its mark too. */
static void mark_others(const char *committed, const char *name) {
  if (was_committed_name(name))
    rewrite_rows(committed, mark_of(name).name, RowsOf::OTHERS);
  else
    rewrite_rows(committed, name, RowsOf::OTHERS);
}

static void rewrite_marked(void) {
  ListCell *cell;

  foreach (cell, renames) {
    const Rename *rename = (Rename *)lfirst(cell);
    const char *name = NameStr(rename->name);
    if (rename == last_rename(rename->server) && was_committed_name(name))
      rewrite_rows(mark_of(name).name, name, RowsOf::ALL);
  }
}

/* The transaction may have been open for long. Rows that it has written itself may have the name too. */
static void check_others(const char *committed, const char *) {
  if (count_rows(committed, 2 * MAX_ROWS + 1) > 2 * MAX_ROWS)
    report_too_many(committed);
}

static void finish(void) {
  const char *sink = NameStr(((Rename *)linitial(renames))->committed);

  PushActiveSnapshot(GetTransactionSnapshot());
  OwnerScope scope = owner_enter();
  for_each_sink(check_others);
  /* Most of them without the lock. With an older snapshot an UPDATE beside other sessions' ones would fail. */
  if (!IsolationUsesXactSnapshot())
    with_lock_timeout(sink, [] { for_each_sink(rewrite_others); });
  if (!rename_lock_tables(timeout_ms()))
    report_no_lock(sink);
  for_each_sink(mark_others);
  rewrite_marked();
  for_each_sink(rename_conditions);
  for_each_sink([](const char *, const char *name) { finish_conditions(name); });
  owner_leave(scope);
  PopActiveSnapshot();
}

/* The tables are missing when the transaction has dropped the extension. */
static bool tables_exist(void) {
  Oid schema = get_namespace_oid("outbox", true);

  return OidIsValid(schema) && OidIsValid(get_relname_relid("events_failed", schema)) &&
         OidIsValid(get_namespace_oid("outbox_internal", true));
}

static void on_transaction(XactEvent event, void *) {
  switch (event) {
  case XACT_EVENT_PRE_COMMIT:
    /* A deferred trigger of a user's on these rows, which would not run any more, may rename a sink too. */
    for (int finished = 0; list_length(renames) > finished && tables_exist();) {
      finished = list_length(renames);
      finish();
      AfterTriggerFireDeferred();
    }
    break;
  case XACT_EVENT_PRE_PREPARE:
    if (renames != NIL)
      ereport(ERROR,
              (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("cannot PREPARE a transaction that has renamed a sink"),
               errdetail("Until COMMIT PREPARED nobody could enqueue."), errhint("Use COMMIT.")));
    break;
  case XACT_EVENT_COMMIT:
  case XACT_EVENT_ABORT:
    renames = NIL;
    break;
  default:
    break;
  }
}

/* Later subtransactions have higher numbers. All changes since the start of the aborted one are undone. */
static void on_subtransaction(SubXactEvent event, SubTransactionId subtransaction, SubTransactionId, void *) {
  ListCell *cell;

  if (event != SUBXACT_EVENT_ABORT_SUB)
    return;
  foreach (cell, renames)
    if (((Rename *)lfirst(cell))->made_in >= subtransaction)
      renames = foreach_delete_current(renames, cell);
}

void sink_rename_init(void) {
  RegisterXactCallback(on_transaction, NULL);
  RegisterSubXactCallback(on_subtransaction, NULL);
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
