/*
 * definition_guard.cpp: a change is refused to everybody, as a superuser's mistake stops the applications as well.
 * An object that is not as the extension made it may be changed, so that it can be put back. A script of the
 * extension may change all, and so may a user who first takes a table out of the extension (ALTER EXTENSION outbox
 * DROP TABLE), for example to restore this table alone.
 */
#include "server/catalog/definition_guard.h"

#include "server/base/catalog_row.h"
#include "server/catalog/definition.h"
#include "server/catalog/wrappers.h"

extern "C" {
#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/objectaddress.h"
#include "catalog/partition.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_foreign_data_wrapper.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
}

/* pg_depend is read only for objects in these schemas: the hook runs for each DDL command of the database. */
static bool in_our_schema(Oid schema) {
  return OidIsValid(schema) &&
         (schema == get_namespace_oid("outbox", true) || schema == get_namespace_oid("outbox_internal", true));
}

static bool is_member(Oid class_id, Oid object) {
  Oid extension = get_extension_oid("outbox", true);

  return OidIsValid(extension) && getExtensionOfObject(class_id, object) == extension;
}

/* The name of the table's schema before the command. */
static const char *schema_of(Oid table) {
  const char *name = get_namespace_name(get_rel_namespace(table));

  return name ? name : "";
}

/* A table of the extension's, or a partition of one. */
static bool is_our_table(Oid table) {
  if (!in_our_schema(get_rel_namespace(table)))
    return false;
  if (is_member(RelationRelationId, table))
    return true;
  List *ancestors = get_rel_relispartition(table) ? get_partition_ancestors(table) : NIL;
  return ancestors != NIL && is_member(RelationRelationId, llast_oid(ancestors));
}

[[noreturn]] static void refuse(const char *what, const char *detail, const char *hint) {
  ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("%s", what), errdetail("%s", detail),
                  hint ? errhint("%s", hint) : 0));
  pg_unreachable();
}

static const char *const NAMED = "Functions and the worker of outbox look for it there, and would fail.";

/* ---- names and schemas ---- */

/* Valid as long as the row. */
static Datum column_in(HeapTuple row, Oid class_id, AttrNumber column) {
  Relation catalog = table_open(class_id, AccessShareLock);
  const TupleDesc columns = RelationGetDescr(catalog);
  Datum *values = (Datum *)palloc(sizeof(Datum) * columns->natts);
  bool *nulls = (bool *)palloc(sizeof(bool) * columns->natts);

  heap_deform_tuple(row, columns, values, nulls);
  table_close(catalog, AccessShareLock);
  return values[column - 1];
}

/* Copied, because the row before the command goes when the cache is invalidated. */
static const char *name_in(HeapTuple row, Oid class_id) {
  return pstrdup(NameStr(*DatumGetName(column_in(row, class_id, get_object_attnum_name(class_id)))));
}

static Oid schema_in(HeapTuple row, Oid class_id) {
  const AttrNumber column = get_object_attnum_namespace(class_id);

  return column == InvalidAttrNumber ? InvalidOid : DatumGetObjectId(column_in(row, class_id, column));
}

/* Does it have a name of ours, which it must keep? `name` and `schema` are those before the command. */
static bool keeps_its_name(Oid class_id, Oid object, const char *name, Oid schema) {
  char kind[NAMEDATALEN];

  if (class_id == NamespaceRelationId)
    return (strcmp(name, "outbox") == 0 || strcmp(name, "outbox_internal") == 0) && is_member(class_id, object);
  if (class_id == ForeignDataWrapperRelationId)
    return wrapper_kind(object, kind, KIND_MESSAGES);
  if (!in_our_schema(schema))
    return false;
  if (class_id == ProcedureRelationId)
    return is_member(class_id, object);
  const char relkind = get_rel_relkind(object);
  if (relkind == RELKIND_INDEX || relkind == RELKIND_PARTITIONED_INDEX)
    return defined_index(name) && is_our_table(IndexGetRelation(object, true));
  if (relkind == RELKIND_VIEW)
    return is_member(class_id, object);
  return is_our_table(object) && (get_rel_relispartition(object) || defined_relation(schema_of(object), name));
}

static void check_name(Oid class_id, Oid object) {
  HeapTuple before = SearchSysCache1(get_object_catcache_oid(class_id), ObjectIdGetDatum(object));
  if (!HeapTupleIsValid(before))
    return;
  const char *name = name_in(before, class_id);
  const Oid schema = schema_in(before, class_id);
  ReleaseSysCache(before);
  HeapTuple now =
      catalog_row_as_written(class_id, get_object_oid_index(class_id), get_object_attnum_oid(class_id), object);
  if (!HeapTupleIsValid(now) || !keeps_its_name(class_id, object, name, schema))
    return;
  if (strcmp(name_in(now, class_id), name) != 0)
    refuse(psprintf("%s of extension outbox cannot be renamed", name), NAMED, NULL);
  if (schema_in(now, class_id) != schema)
    refuse(psprintf("%s of extension outbox cannot move to another schema", name), NAMED, NULL);
}

/* ---- columns ---- */

static HeapTuple column_as_written(Oid table, AttrNumber number) {
  Relation catalog = table_open(AttributeRelationId, AccessShareLock);
  ScanKeyData key[2];

  ScanKeyInit(&key[0], Anum_pg_attribute_attrelid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(table));
  ScanKeyInit(&key[1], Anum_pg_attribute_attnum, BTEqualStrategyNumber, F_INT2EQ, Int16GetDatum(number));
  SysScanDesc scan = systable_beginscan(catalog, AttributeRelidNumIndexId, true, SnapshotSelf, 2, key);
  HeapTuple tuple = systable_getnext(scan);
  if (HeapTupleIsValid(tuple))
    tuple = heap_copytuple(tuple);
  systable_endscan(scan);
  table_close(catalog, AccessShareLock);
  return tuple;
}

/* The name and type of the column, as definition.cpp has them. */
static const char *definition_of(HeapTuple row) {
  Form_pg_attribute column = (Form_pg_attribute)GETSTRUCT(row);
  const char *collation = column->attcollation == C_COLLATION_OID ? " \"C\"" : "";

  if (column->attidentity != '\0' || column->attgenerated != '\0')
    collation = " GENERATED";
  return psprintf("%s %s%s", NameStr(column->attname), format_type_with_typemod(column->atttypid, column->atttypmod),
                  collation);
}

static bool is_defined(Oid table, HeapTuple column) {
  return HeapTupleIsValid(column) && defined_column(schema_of(table), get_rel_name(table), definition_of(column));
}

static void check_column(Oid table, AttrNumber number, bool dropped) {
  if (number <= 0 || !is_our_table(table))
    return;
  HeapTuple before = SearchSysCache2(ATTNUM, ObjectIdGetDatum(table), Int16GetDatum(number));
  const bool was_defined = is_defined(table, before);
  const char *name = was_defined ? pstrdup(NameStr(((Form_pg_attribute)GETSTRUCT(before))->attname)) : NULL;
  if (HeapTupleIsValid(before))
    ReleaseSysCache(before);
  if (!was_defined || (!dropped && is_defined(table, column_as_written(table, number))))
    return;
  refuse(psprintf(dropped ? "column %s of table %s cannot be dropped" : "column %s of table %s cannot be changed",
                  name, get_rel_name(table)),
         "Statements of outbox name the column and rely on its type: without it no application could enqueue, and "
         "nothing would be delivered.",
         "For other names or types: outbox.create_view() makes a view with columns of your own.");
}

/* Rows move between partitions, and are copied for further sinks, by lists of columns. A list that followed the table
 * would also have to decide what a redrive and a replay do with a column that the extension does not know. */
static void check_new_column(Oid table, AttrNumber number) {
  const char relkind = get_rel_relkind(table);

  if ((relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE) || !is_our_table(table) ||
      is_defined(table, column_as_written(table, number)))
    return;
  refuse(psprintf("a column cannot be added to %s.%s", schema_of(table), get_rel_name(table)),
         "Functions of outbox write the table by lists of its columns: values of others would be lost when an event "
         "becomes SENT or FAILED, is redriven, or is copied for further sinks.",
         "Put what consumers need into headers or payload, and what only you need into a table of your own with the "
         "event's id.");
}

/* ---- partitions ---- */

static bool is_attached_now(Oid child) {
  Relation catalog = table_open(InheritsRelationId, AccessShareLock);
  ScanKeyData key;

  ScanKeyInit(&key, Anum_pg_inherits_inhrelid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(child));
  SysScanDesc scan = systable_beginscan(catalog, InheritsRelidSeqnoIndexId, true, SnapshotSelf, 1, &key);
  const bool found = HeapTupleIsValid(systable_getnext(scan));
  systable_endscan(scan);
  table_close(catalog, AccessShareLock);
  return found;
}

/* A day of delivered events is no member of the extension: it may be detached. */
static void check_partition(Oid child, Oid parent) {
  if (!is_member(RelationRelationId, child) || !is_our_table(parent) || is_attached_now(child))
    return;
  refuse(psprintf("table %s cannot be detached from %s", get_rel_name(child), get_rel_name(parent)), NAMED,
         "To replace the table, first: ALTER EXTENSION outbox DROP TABLE.");
}

void definition_guard(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg) {
  if (creating_extension || IsBinaryUpgrade)
    return;
  if (access == OAT_POST_CREATE && class_id == RelationRelationId && sub_id > 0)
    check_new_column(object_id, (AttrNumber)sub_id);
  if (access == OAT_DROP && class_id == RelationRelationId && sub_id != 0)
    check_column(object_id, (AttrNumber)sub_id, true);
  if (access != OAT_POST_ALTER)
    return;
  if (class_id == RelationRelationId && sub_id != 0)
    check_column(object_id, (AttrNumber)sub_id, false);
  else if (class_id == RelationRelationId || class_id == ProcedureRelationId || class_id == NamespaceRelationId ||
           class_id == ForeignDataWrapperRelationId)
    check_name(class_id, object_id);
  else if (class_id == InheritsRelationId)
    check_partition(object_id, ((ObjectAccessPostAlter *)arg)->auxiliary_id);
}

/* ---- statements ---- */

static void check_dropped_index(Oid index) {
  if (!OidIsValid(index) || !defined_index(get_rel_name(index)) || !is_our_table(IndexGetRelation(index, true)))
    return;
  refuse(psprintf("index %s of extension outbox cannot be dropped", get_rel_name(index)),
         "Without it statements of outbox fail or read whole tables.",
         "If it is damaged: REINDEX INDEX CONCURRENTLY.");
}

static void check_dropped_trigger(Oid table, const char *name) {
  if (!OidIsValid(table) || !is_our_table(table))
    return;
  Oid trigger = get_trigger_oid(table, name, true);
  HeapTuple row = OidIsValid(trigger)
                      ? catalog_row_as_written(TriggerRelationId, TriggerOidIndexId, Anum_pg_trigger_oid, trigger)
                      : NULL;
  if (!HeapTupleIsValid(row) || !in_our_schema(get_func_namespace(((Form_pg_trigger)GETSTRUCT(row))->tgfoid)))
    return;
  refuse(psprintf("trigger %s of extension outbox cannot be dropped", name),
         "Without it events get no position and no sink.", NULL);
}

static void check_drop(DropStmt *drop) {
  ListCell *cell;

  foreach (cell, drop->objects) {
    if (drop->removeType == OBJECT_INDEX)
      check_dropped_index(RangeVarGetRelid(makeRangeVarFromNameList((List *)lfirst(cell)), NoLock, true));
    else { /* a trigger: the table's name, and its own */
      List *name = (List *)lfirst(cell);
      List *table = list_copy_head(name, list_length(name) - 1);
      if (table != NIL)
        check_dropped_trigger(RangeVarGetRelid(makeRangeVarFromNameList(table), NoLock, true), strVal(llast(name)));
    }
  }
}

static void check_alter_table(AlterTableStmt *alter) {
  ListCell *cell;

  foreach (cell, alter->cmds) {
    AlterTableCmd *command = (AlterTableCmd *)lfirst(cell);
    if (command->subtype != AT_SetUnLogged && command->subtype != AT_DropConstraint)
      continue;
    Oid table = RangeVarGetRelid(alter->relation, NoLock, true);
    if (!OidIsValid(table) || !is_our_table(table))
      continue;
    if (command->subtype == AT_SetUnLogged)
      refuse(psprintf("%s of extension outbox cannot be unlogged", get_rel_name(table)),
             "A crash of the server would empty it, and events would be lost.", NULL);
    if (defined_index(command->name))
      check_dropped_index(get_relname_relid(command->name, get_rel_namespace(table)));
  }
}

void definition_guard_statement(Node *statement) {
  if (creating_extension || IsBinaryUpgrade)
    return;
  if (IsA(statement, DropStmt) &&
      (((DropStmt *)statement)->removeType == OBJECT_INDEX || ((DropStmt *)statement)->removeType == OBJECT_TRIGGER))
    check_drop((DropStmt *)statement);
  else if (IsA(statement, AlterTableStmt))
    check_alter_table((AlterTableStmt *)statement);
}
