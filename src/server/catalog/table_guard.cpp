/*
 * table_guard.cpp: triggers on the extension's tables must belong to the owner of outbox.events. Workers once ran
 * as the bootstrap superuser, and a holder of the TRIGGER right could become superuser by a trigger. Rules are
 * refused for everybody.
 */
#include "server/catalog/table_guard.h"

#include "server/base/catalog_row.h"
#include "server/base/position_step.h"

extern "C" {
#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_rewrite.h"
#include "catalog/pg_sequence.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
}

static bool is_ours(Oid table) {
  Oid schema = get_rel_namespace(table);

  return OidIsValid(schema) &&
         (schema == get_namespace_oid("outbox", true) || schema == get_namespace_oid("outbox_internal", true)) &&
         OidIsValid(get_extension_oid("outbox", true));
}

static Oid owner_of(Oid table) {
  HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
  Oid owner = InvalidOid;

  if (HeapTupleIsValid(tuple)) {
    owner = ((Form_pg_class)GETSTRUCT(tuple))->relowner;
    ReleaseSysCache(tuple);
  }
  return owner;
}

static void check_trigger(Oid trigger) {
  HeapTuple row = catalog_row_as_written(TriggerRelationId, TriggerOidIndexId, Anum_pg_trigger_oid, trigger);
  Oid table = row ? ((Form_pg_trigger)GETSTRUCT(row))->tgrelid : InvalidOid;

  if (!OidIsValid(table) || !is_ours(table) || has_privs_of_role(GetUserId(), owner_of(table)))
    return;
  ereport(ERROR,
          (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
           errmsg("must be owner of table %s to give it a trigger or refer to it", get_rel_name(table)),
           errdetail("The worker of outbox would run the trigger with the privileges of the table's owner."),
           errhint("Put the trigger on a table of your own, and REVOKE the privilege TRIGGER (or REFERENCES), which "
                   "has no effect here.")));
}

static void check_owner(Oid table) {
  if (!is_ours(table))
    return;
  HeapTuple row = catalog_row_as_written(RelationRelationId, ClassOidIndexId, Anum_pg_class_oid, table);
  Oid owner = row ? ((Form_pg_class)GETSTRUCT(row))->relowner : InvalidOid;
  if (!OidIsValid(owner) || owner == owner_of(table) || superuser_arg(owner) ||
      owner == owner_of(get_relname_relid("events", get_namespace_oid("outbox", true))))
    return;
  ereport(
      ERROR,
      (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
       errmsg("permission denied to change owner of table %s", get_rel_name(table)),
       errdetail("All tables of outbox belong to one role. Functions with superuser privileges write to them, so the "
                 "owner of a table could run code with these privileges."),
       errhint("Instead, GRANT what the role needs.")));
}

/* Positions must be drawn one by one and upwards to be the order in which events were enqueued. */
static void check_sequence(Oid sequence) {
  if (get_rel_relkind(sequence) != RELKIND_SEQUENCE || !is_ours(sequence) ||
      strcmp(get_rel_name(sequence), "events_position") != 0)
    return;
  HeapTuple row =
      catalog_row_as_written(SequenceRelationId, SequenceRelidIndexId, Anum_pg_sequence_seqrelid, sequence);
  if (!HeapTupleIsValid(row))
    return;
  Form_pg_sequence form = (Form_pg_sequence)GETSTRUCT(row);
  if (form->seqcache != 1 || form->seqincrement != POSITION_STEP || form->seqcycle || form->seqtypid != INT8OID ||
      form->seqmin != 1 || form->seqmax != PG_INT64_MAX)
    ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                    errmsg("sequence %s must stay as the extension made it", get_rel_name(sequence)),
                    errdetail("Its order is the order in which events are delivered: it counts up in steps of %d, "
                              "without a cache, a bound or a cycle.",
                              (int)POSITION_STEP),
                    errhint("ALTER SEQUENCE outbox.events_position AS bigint INCREMENT BY %d MINVALUE 1 NO MAXVALUE "
                            "CACHE 1 NO CYCLE;",
                            (int)POSITION_STEP)));
}

/* A rule's statements run within the extension's own, where triggers cannot tell them from those (own_change.h): what
 * they change would not be read again. A view has the rule that PostgreSQL gives it. */
static void refuse_rule(Oid rule) {
  HeapTuple row = catalog_row_as_written(RewriteRelationId, RewriteOidIndexId, Anum_pg_rewrite_oid, rule);
  Oid table = row ? ((Form_pg_rewrite)GETSTRUCT(row))->ev_class : InvalidOid;

  if (!OidIsValid(table) || get_rel_relkind(table) == RELKIND_VIEW || !is_ours(table))
    return;
  ereport(
      ERROR,
      (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("table %s cannot have a rule", get_rel_name(table)),
       errdetail("The rule would rewrite statements of outbox, which could then lose events or leave them waiting."),
       errhint("Use a trigger.")));
}

void table_guard(ObjectAccessType access, Oid class_id, Oid object_id) {
  if (access == OAT_POST_CREATE && class_id == TriggerRelationId)
    check_trigger(object_id);
  else if (access == OAT_POST_CREATE && class_id == RewriteRelationId)
    refuse_rule(object_id);
  else if (access == OAT_POST_ALTER && class_id == RelationRelationId) {
    check_owner(object_id);
    check_sequence(object_id);
  }
}
