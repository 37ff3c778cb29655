/*
 * sink_ddl.cpp: a ProcessUtility hook alone does not know what a command changed. So an object access hook notes the
 * changed catalog rows, and the end of the command applies the changes.
 */
#include "server/catalog/sink_ddl.h"

#include "server/base/catalog_row.h"
#include "server/catalog/dropped_sinks.h"
#include "server/catalog/sink_rename.h"
#include "server/catalog/stopped_sinks.h"
#include "server/catalog/wrappers.h"

extern "C" {
#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_user_mapping.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
}

typedef enum ChangeKind { SINK_CREATED, SINK_RENAMED, SINK_ALTERED, SINK_GIVEN, SINK_DROPPED } ChangeKind;

typedef struct Change {
  ChangeKind kind;
  SubTransactionId made_in;
  Oid server;
  NameData sink;
  NameData new_name; /* of SINK_RENAMED; the new owner of SINK_GIVEN; the kind of SINK_DROPPED */
  Datum options;     /* of SINK_DROPPED: those for routing, text[] */
  NameData role;     /* who ran the command */
} Change;

/* Of Change, in order, in TopTransactionContext. */
static List *changes = NIL; /* to be applied at the end of the command */
static List *to_log = NIL;  /* applied; logged before the commit */

static Change *note(ChangeKind kind, Oid server, const char *sink, const char *new_name) {
  MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);
  Change *change = palloc0_object(Change);

  change->kind = kind;
  change->made_in = GetCurrentSubTransactionId();
  change->server = server;
  namestrcpy(&change->sink, sink);
  namestrcpy(&change->new_name, new_name);
  const char *role = GetUserNameFromId(GetUserId(), true);
  namestrcpy(&change->role, role ? role : "");
  changes = lappend(changes, change);
  MemoryContextSwitchTo(caller);
  return change;
}

static void note_dropped(Form_pg_foreign_server server, HeapTuple written) {
  char kind[NAMEDATALEN];
  bool isnull;

  wrapper_kind(server->srvfdw, kind, KIND_MESSAGES);
  Change *change = note(SINK_DROPPED, server->oid, NameStr(server->srvname), kind);
  Datum options = SysCacheGetAttr(FOREIGNSERVEROID, written, Anum_pg_foreign_server_srvoptions, &isnull);
  MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);
  change->options = dropped_sink_options(options, isnull);
  MemoryContextSwitchTo(caller);
}

static bool is_sink(Form_pg_foreign_server server) {
  char kind[NAMEDATALEN];

  return wrapper_kind(server->srvfdw, kind, KIND_MESSAGES);
}

static bool same_options(OUTBOX_SYSCACHE cache, AttrNumber column, HeapTuple before, HeapTuple now) {
  bool none_before, none_now;
  Datum a = SysCacheGetAttr(cache, before, column, &none_before), b = SysCacheGetAttr(cache, now, column, &none_now);

  if (none_before || none_now)
    return none_before == none_now;
  return datumIsEqual(PointerGetDatum(PG_DETOAST_DATUM(a)), PointerGetDatum(PG_DETOAST_DATUM(b)), false, -1);
}

/* A control character in a name would break lines of the log, HTTP headers, and statements that are copied from a
 * screen. */
static void check_name(const char *name) {
  for (const char *c = name; *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f)
      ereport(ERROR, (errcode(ERRCODE_INVALID_NAME), errmsg("name of a sink must not contain control characters"),
                      errdetail("Byte %d is 0x%02x.", (int)(c - name) + 1, (unsigned char)*c),
                      errhint("Use a name without line breaks and tabs, such as crm.")));
}

/* The catalog cache still has the row from before this command. */
static void note_altered_server(Form_pg_foreign_server now, HeapTuple written) {
  HeapTuple before = SearchSysCache1(FOREIGNSERVEROID, ObjectIdGetDatum(now->oid));

  if (!HeapTupleIsValid(before))
    return;
  const char *former_name = NameStr(((Form_pg_foreign_server)GETSTRUCT(before))->srvname);
  if (strcmp(former_name, NameStr(now->srvname)) != 0) {
    check_name(NameStr(now->srvname));
    note(SINK_RENAMED, now->oid, former_name, NameStr(now->srvname));
  }
  if (!same_options(FOREIGNSERVEROID, Anum_pg_foreign_server_srvoptions, before, written))
    note(SINK_ALTERED, now->oid, NameStr(now->srvname), "");
  if (((Form_pg_foreign_server)GETSTRUCT(before))->srvowner != now->srvowner)
    note(SINK_GIVEN, now->oid, NameStr(now->srvname), GetUserNameFromId(now->srvowner, false));
  ReleaseSysCache(before);
}

static void note_server(ObjectAccessType access, Oid oid) {
  HeapTuple written =
      catalog_row_as_written(ForeignServerRelationId, ForeignServerOidIndexId, Anum_pg_foreign_server_oid, oid);
  Form_pg_foreign_server server = HeapTupleIsValid(written) ? (Form_pg_foreign_server)GETSTRUCT(written) : NULL;

  if (server == NULL || !is_sink(server))
    return;
  if (access == OAT_POST_CREATE) {
    check_name(NameStr(server->srvname));
    note(SINK_CREATED, server->oid, NameStr(server->srvname), "");
  } else if (access == OAT_POST_ALTER)
    note_altered_server(server, written);
  else if (access == OAT_DROP)
    note_dropped(server, written);
}

static bool mapping_is_altered(Oid mapping, HeapTuple written) {
  HeapTuple before = SearchSysCache1(USERMAPPINGOID, ObjectIdGetDatum(mapping));
  bool altered =
      HeapTupleIsValid(before) && !same_options(USERMAPPINGOID, Anum_pg_user_mapping_umoptions, before, written);

  if (HeapTupleIsValid(before))
    ReleaseSysCache(before);
  return altered;
}

static void note_mapping(ObjectAccessType access, Oid oid) {
  HeapTuple written =
      catalog_row_as_written(UserMappingRelationId, UserMappingOidIndexId, Anum_pg_user_mapping_oid, oid);
  Form_pg_user_mapping mapping = HeapTupleIsValid(written) ? (Form_pg_user_mapping)GETSTRUCT(written) : NULL;

  /* The worker reads PUBLIC's mappings only. */
  if (mapping == NULL || OidIsValid(mapping->umuser) ||
      (access == OAT_POST_ALTER && !mapping_is_altered(oid, written)))
    return;
  HeapTuple tuple = SearchSysCache1(FOREIGNSERVEROID, ObjectIdGetDatum(mapping->umserver));
  if (!HeapTupleIsValid(tuple))
    return;
  Form_pg_foreign_server server = (Form_pg_foreign_server)GETSTRUCT(tuple);
  if (is_sink(server))
    note(SINK_ALTERED, server->oid, NameStr(server->srvname), "");
  ReleaseSysCache(tuple);
}

void sink_ddl_note(ObjectAccessType access, Oid class_id, Oid object_id) {
  if (access != OAT_POST_CREATE && access != OAT_POST_ALTER && access != OAT_DROP)
    return;
  if (class_id == ForeignServerRelationId)
    note_server(access, object_id);
  else if (class_id == UserMappingRelationId)
    note_mapping(access, object_id);
}

/* The tables are missing while the extension is dropped, and before pg_upgrade has restored them. */
static bool tables_exist(void) {
  Oid schema = get_namespace_oid("outbox", true), internal = get_namespace_oid("outbox_internal", true);

  return OidIsValid(schema) && OidIsValid(get_relname_relid("events", schema)) &&
         OidIsValid(get_relname_relid("stopped_sinks", schema)) && OidIsValid(internal) &&
         OidIsValid(get_relname_relid("failing_sinks", internal));
}

static void warn_of_pending(const char *sink) {
  int64 n = sink_pending_rows(sink);

  if (n > 0)
    ereport(
        WARNING,
        (errmsg_plural("%lld event still waits for the dropped sink \"%s\"",
                       "%lld events still wait for the dropped sink \"%s\"", (unsigned long)n, (long long)n, sink),
         errdetail(
             "They are not delivered. outbox.sinks shows the sink in state \"dropped\" while there are such events."),
         errhint("A sink that is created under this name delivers them. See the check \"lost sink\" of "
                 "outbox.doctor().")));
}

/* The statement is hidden: it may contain secrets. Before the commit, so that the log tells of no change that was
 * rolled back, except by a failing COMMIT. */
static void log_changes(void) {
  ListCell *cell;

  foreach (cell, to_log) {
    const Change *change = (const Change *)lfirst(cell);
    const char *what = NULL;
    switch (change->kind) {
    case SINK_CREATED:
      what = "created";
      break;
    case SINK_RENAMED:
      what = psprintf("renamed to \"%s\"", NameStr(change->new_name));
      break;
    case SINK_ALTERED:
      what = "altered";
      break;
    case SINK_GIVEN:
      what = psprintf("given to role \"%s\"", NameStr(change->new_name));
      break;
    case SINK_DROPPED:
      what = "dropped";
      break;
    }
    ereport(LOG_SERVER_ONLY,
            (errmsg("outbox sink \"%s\": %s by role \"%s\"", NameStr(change->sink), what, NameStr(change->role)),
             errhidestmt(true), errhidecontext(true)));
  }
  to_log = NIL;
}

/* CREATE SERVER and its user mapping in one transaction are one line, and so is DROP SERVER, which drops the mapping
 * first. */
static void add_to_log(Change *change) {
  const Change *last = to_log ? (const Change *)llast(to_log) : NULL;

  if (last && namestrcmp(&change->sink, NameStr(last->sink)) == 0) {
    if (change->kind == SINK_ALTERED && (last->kind == SINK_CREATED || last->kind == SINK_ALTERED))
      return;
    if (change->kind == SINK_DROPPED && last->kind == SINK_ALTERED && last->made_in == change->made_in)
      to_log = list_delete_last(to_log);
  }
  MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);
  to_log = lappend(to_log, change);
  MemoryContextSwitchTo(caller);
}

void sink_ddl_apply(void) {
  ListCell *cell;

  if (changes == NIL)
    return;
  CommandCounterIncrement();
  /* A trigger on these tables may run utility commands, which call this function again. */
  List *pending_changes = changes;
  changes = NIL;
  foreach (cell, pending_changes)
    add_to_log((Change *)lfirst(cell));
  if (!tables_exist())
    return;
  foreach (cell, pending_changes) {
    Change *change = (Change *)lfirst(cell);
    const char *sink = NameStr(change->sink);
    switch (change->kind) {
    case SINK_CREATED:
      stopped_sinks_forget(sink);
      dropped_sinks_forget(sink);
      break;
    case SINK_GIVEN:
      break;
    case SINK_RENAMED:
      dropped_sinks_forget(NameStr(change->new_name));
      sink_rename_rows(change->server, sink, NameStr(change->new_name));
      stopped_sinks_rename(sink, NameStr(change->new_name));
      break;
    case SINK_ALTERED:
      stopped_sinks_enable(sink);
      break;
    case SINK_DROPPED:
      stopped_sinks_forget(sink);
      dropped_sinks_add(sink, NameStr(change->new_name), change->options, NameStr(change->role));
      warn_of_pending(sink);
      break;
    }
  }
}

static void at_end_of_transaction(XactEvent event, void *) {
  if (event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE)
    log_changes();
  else if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
    changes = to_log = NIL;
}

/* Later subtransactions have higher numbers. All changes since the start of the aborted one are undone. */
static void at_end_of_subtransaction(SubXactEvent event, SubTransactionId subtransaction, SubTransactionId, void *) {
  ListCell *cell;

  if (event != SUBXACT_EVENT_ABORT_SUB)
    return;
  foreach (cell, changes)
    if (((Change *)lfirst(cell))->made_in >= subtransaction)
      changes = foreach_delete_current(changes, cell);
  foreach (cell, to_log)
    if (((Change *)lfirst(cell))->made_in >= subtransaction)
      to_log = foreach_delete_current(to_log, cell);
}

void sink_ddl_init(void) {
  sink_rename_init();
  RegisterXactCallback(at_end_of_transaction, NULL);
  RegisterSubXactCallback(at_end_of_subtransaction, NULL);
}
