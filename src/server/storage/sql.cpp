/*
 * sql.cpp: a DestReceiver passes each row to the visitor, so that no tuple table of a whole round is built.
 */
#include "server/storage/sql.h"

extern "C" {
#include "catalog/pg_type.h"
#include "nodes/params.h"
#include "tcop/dest.h"
#include "utils/array.h"
#include "utils/snapmgr.h"
}

typedef struct VisitReceiver {
  DestReceiver receiver; /* must be the first member: the executor's type for this object */
  SlotVisitor visit;
  void *context;
} VisitReceiver;

static bool receive_row(TupleTableSlot *tuple, DestReceiver *self) {
  VisitReceiver *receiver = (VisitReceiver *)self;

  if (receiver->visit == NULL)
    return true;
  slot_getallattrs(tuple);
  return receiver->visit(tuple, receiver->context);
}

static void receive_nothing(DestReceiver *) {}

static void receive_startup(DestReceiver *, int, TupleDesc) {}

static uint64 run(Statement *statement, const Datum *values, bool read_only, SlotVisitor visit, void *context) {
  VisitReceiver receiver = {
      {receive_row, receive_startup, receive_nothing, receive_nothing, DestNone}, visit, context};
  SPIExecuteOptions options;

  Assert(in_spi());
  if (statement->plan == NULL) {
    SPIPlanPtr plan = SPI_prepare(statement->sql, statement->n_args, const_cast<Oid *>(statement->args));
    if (plan == NULL || SPI_keepplan(plan) != 0)
      elog(ERROR, "could not prepare \"%s\": %s", statement->sql, SPI_result_code_string(SPI_result));
    statement->plan = plan;
  }
  ParamListInfo params = makeParamList(statement->n_args);
  for (int i = 0; i < statement->n_args; i++) {
    params->params[i].value = values[i];
    params->params[i].isnull = false;
    params->params[i].pflags = PARAM_FLAG_CONST;
    params->params[i].ptype = statement->args[i];
  }
  memset(&options, 0, sizeof(options));
  options.params = params;
  options.read_only = read_only;
  options.dest = &receiver.receiver;
  int result = SPI_execute_plan_extended(statement->plan, &options);
  if (result < 0)
    elog(ERROR, "could not run \"%s\": %s", statement->sql, SPI_result_code_string(result));
  return SPI_processed;
}

void statement_read(Statement *statement, const Datum *values, Snapshot snapshot, SlotVisitor visit, void *context) {
  /* A read-only SPI statement uses the active snapshot. */
  PushActiveSnapshot(snapshot != InvalidSnapshot ? snapshot : GetTransactionSnapshot());
  run(statement, values, true, visit, context);
  PopActiveSnapshot();
}

uint64 statement_write(Statement *statement, const Datum *values, SlotVisitor visit, void *context) {
  return run(statement, values, false, visit, context);
}

/* SPI has no function for this question. SPI_unregister_relation() fails for the unregistered name "", but with
 * another error code when SPI is not connected. */
bool in_spi(void) {
  return SPI_unregister_relation("") != SPI_ERROR_UNCONNECTED;
}

AttrNumber column_number(TupleDesc desc, const char *name, AttrNumber *known) {
  if (*known < 1 || *known > desc->natts || strcmp(NameStr(TupleDescAttr(desc, *known - 1)->attname), name) != 0)
    *known = (AttrNumber)SPI_fnumber(desc, name);
  return *known;
}

Datum tid_array(ItemPointerData *tids, int n) {
  Datum *values = palloc_array(Datum, Max(n, 1));

  for (int i = 0; i < n; i++)
    values[i] = PointerGetDatum(&tids[i]);
  return PointerGetDatum(construct_array(values, n, TIDOID, sizeof(ItemPointerData), false, TYPALIGN_SHORT));
}

Datum int8_array(const int64 *values, int n) {
  Datum *datums = palloc_array(Datum, Max(n, 1));

  for (int i = 0; i < n; i++)
    datums[i] = Int64GetDatum(values[i]);
  return PointerGetDatum(construct_array(datums, n, INT8OID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

Datum text_array(Datum *values, int n) {
  return PointerGetDatum(construct_array(values, n, TEXTOID, -1, false, TYPALIGN_INT));
}
