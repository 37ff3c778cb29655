/*
 * trigger_row.cpp: columns are found by name and type, because a partition may order its columns in another way.
 * The numbers are cached for four relations, the few that a session writes to.
 */
#include "server/event/trigger_row.h"

extern "C" {
#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "utils/datum.h"
#include "utils/inval.h"
}

/* In the order of EventColumn. */
const char *const event_column_names[EV_COLUMNS] = {
    "id",           "aggregate_type", "aggregate_id",    "event_type", "payload", "payload_bytes",
    "content_type", "headers",        "partition_key",   "dedup_key",  "seq",     "created_at",
    "available_at", "attempts",       "status",          "last_error", "sent_at", "last_attempt_at",
    "sink",         "blocked_by",     "position",        "xact",       "origin",  "application",
    "overtaken_by", "redrive_late",   "acknowledgement",
};

const Oid event_column_types[EV_COLUMNS] = {
    UUIDOID, TEXTOID, TEXTOID,        TEXTOID,        JSONBOID, BYTEAOID, TEXTOID, JSONBOID,       TEXTOID,
    TEXTOID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT4OID,  TEXTOID,  TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID,
    TEXTOID, INT8OID, INT8OID,        XID8OID,        INT8OID,  TEXTOID,  INT8OID, BOOLOID,        TEXTOID,
};

/* The attribute numbers of one relation. */
typedef struct ColumnMap {
  Oid relation;
  AttrNumber number[EV_COLUMNS];
} ColumnMap;
static ColumnMap maps[4];

static void invalidate_map(Datum, Oid relation) {
  for (ColumnMap &map : maps)
    if (relation == InvalidOid || map.relation == relation)
      map.relation = InvalidOid;
}

static AttrNumber find_column(Relation relation, int column) {
  TupleDesc desc = RelationGetDescr(relation);

  for (int i = 0; i < desc->natts; i++) {
    Form_pg_attribute attribute = TupleDescAttr(desc, i);
    if (!attribute->attisdropped && strcmp(NameStr(attribute->attname), event_column_names[column]) == 0 &&
        attribute->atttypid == event_column_types[column])
      return (AttrNumber)(i + 1);
  }
  ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
                  errmsg("relation \"%s\" has no column \"%s\" as outbox.events has it",
                         RelationGetRelationName(relation), event_column_names[column]),
                  errhint("This trigger is for outbox.events and its partitions.")));
  pg_unreachable();
}

const AttrNumber *column_numbers(Relation relation) {
  static bool registered = false;
  Oid oid = RelationGetRelid(relation);
  ColumnMap *map = &maps[oid % lengthof(maps)];

  if (map->relation == oid)
    return map->number;
  if (!registered) {
    CacheRegisterRelcacheCallback(invalidate_map, (Datum)0);
    registered = true;
  }
  map->relation = InvalidOid;
  for (int column = 0; column < EV_COLUMNS; column++)
    map->number[column] = find_column(relation, column);
  map->relation = oid;
  return map->number;
}

void trigger_row_open(TriggerRow *row, Relation relation, HeapTuple tuple) {
  row->desc = RelationGetDescr(relation);
  row->number = column_numbers(relation);
  row->values = palloc_array(Datum, row->desc->natts);
  row->isnull = palloc_array(bool, row->desc->natts);
  heap_deform_tuple(tuple, row->desc, row->values, row->isnull);
}

static bool is_same_toast_value(Datum a, Datum b) {
  const void *left = DatumGetPointer(a), *right = DatumGetPointer(b);

  return VARATT_IS_EXTERNAL_ONDISK(left) && VARATT_IS_EXTERNAL_ONDISK(right) &&
         memcmp(left, right, VARSIZE_EXTERNAL(left)) == 0;
}

bool row_same(const TriggerRow *a, const TriggerRow *b, EventColumn column) {
  if (row_isnull(a, column) || row_isnull(b, column))
    return row_isnull(a, column) == row_isnull(b, column);
  Form_pg_attribute attribute = TupleDescAttr(a->desc, a->number[column] - 1);
  /* An UPDATE that does not set a column keeps its TOAST pointer. Comparing pointers saves reading the value, which
   * may also be damaged. */
  if (attribute->attlen == -1 && is_same_toast_value(row_get(a, column), row_get(b, column)))
    return true;
  return datum_image_eq(row_get(a, column), row_get(b, column), attribute->attbyval, attribute->attlen);
}

bool row_has_status(const TriggerRow *row, const char *status) {
  if (row_isnull(row, EV_STATUS))
    return strcmp(status, "PENDING") == 0;
  struct varlena *text = PG_DETOAST_DATUM_PACKED(row_get(row, EV_STATUS));
  return VARSIZE_ANY_EXHDR(text) == strlen(status) && memcmp(VARDATA_ANY(text), status, strlen(status)) == 0;
}
