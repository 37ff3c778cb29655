#include "event_insert.h"

extern "C" {
#include "access/table.h"
#include "access/xact.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "lib/stringinfo.h"
#include "utils/memutils.h"
}

#include "owner_sql.h"

static EventWriter next_writer = WRITER_PERSON;

EventWriter event_writer_take(void) {
  EventWriter writer = next_writer;
  next_writer = WRITER_PERSON;
  return writer;
}

/* Whatever happens, the next row is a person's again. */
static void as_writer(EventWriter writer, void (*insert)(void *), void *argument) {
  next_writer = writer;
  PG_TRY();
  { insert(argument); }
  PG_FINALLY();
  { next_writer = WRITER_PERSON; }
  PG_END_TRY();
}

typedef struct Given {
  const Datum *values;
  const bool *isnull;
} Given;

/* Triggers, constraints and indexes as for any INSERT; no parser, planner or rights (as a logical replication worker
 * inserts). */
static void insert_row(void *argument) {
  Given *given = (Given *)argument;
  Relation relation = table_open(outbox_pending_oid(), RowExclusiveLock);
  EState *estate = CreateExecutorState();
  ResultRelInfo *result = makeNode(ResultRelInfo);
  TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(relation), table_slot_callbacks(relation));
  const AttrNumber *number = column_numbers(relation);

  InitResultRelInfo(result, relation, 0, NULL, 0);
  ExecClearTuple(slot);
  memset(slot->tts_isnull, true, sizeof(bool) * slot->tts_tupleDescriptor->natts);
  memset(slot->tts_values, 0, sizeof(Datum) * slot->tts_tupleDescriptor->natts);
  for (int column = 0; column < EV_GIVEN; column++) {
    slot->tts_values[number[column] - 1] = given->values[column];
    slot->tts_isnull[number[column] - 1] = given->isnull[column];
  }
  ExecStoreVirtualTuple(slot);

  ExecOpenIndices(result, false);
  AfterTriggerBeginQuery();
  ExecSimpleRelationInsert(result, estate, slot);
  AfterTriggerEndQuery(estate);
  ExecCloseIndices(result);
  ExecDropSingleTupleTableSlot(slot);
  FreeExecutorState(estate);
  table_close(relation, NoLock);
  CommandCounterIncrement();
}

void event_insert(const Datum *values, const bool *isnull) {
  Given given = {values, isnull};
  as_writer(WRITER_ENQUEUE, insert_row, &given);
}

static char *copy_statement(void) {
  StringInfoData sql, parameters;

  initStringInfo(&sql);
  initStringInfo(&parameters);
  appendStringInfoString(&sql, "INSERT INTO outbox.events_pending (");
  for (int i = 0; i < EV_GIVEN; i++) {
    appendStringInfo(&sql, "%s%s", i > 0 ? ", " : "", event_column_names[i]);
    appendStringInfo(&parameters, "%s$%d", i > 0 ? ", " : "", i + 1);
  }
  appendStringInfo(&sql, ") VALUES (%s) ON CONFLICT DO NOTHING", parameters.data);
  return MemoryContextStrdup(TopMemoryContext, sql.data);
}

static void insert_copy(void *argument) {
  static OwnerSql insert = {NULL, EV_GIVEN, event_column_types, NULL};
  Given *given = (Given *)argument;
  char nulls[EV_GIVEN];

  if (insert.text == NULL)
    insert.text = copy_statement();
  for (int i = 0; i < EV_GIVEN; i++)
    nulls[i] = given->isnull[i] ? 'n' : ' ';
  owner_execute(&insert, const_cast<Datum *>(given->values), nulls);
}

void event_insert_copy(Datum *values, const bool *isnull) {
  Given given = {values, isnull};
  as_writer(WRITER_COPY, insert_copy, &given);
}
