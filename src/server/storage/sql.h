/*
 * sql.h: the worker's statements: prepared once, run through SPI, rows handed over as the executor makes them.
 */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "executor/spi.h"
#include "executor/tuptable.h"
#include "utils/snapshot.h"
}

typedef struct Statement {
  const char *sql;
  int n_args;
  Oid args[8];
  SPIPlanPtr plan; /* NULL until first run */
} Statement;

/* Sees one row; false ends the statement early. Values live until it returns. */
typedef bool (*RowVisitor)(TupleTableSlot *row, void *context);

/* Runs a statement that reads with the given snapshot (InvalidSnapshot: a fresh one) and hands every row to `visit`.
 */
void statement_read(Statement *statement, const Datum *values, Snapshot snapshot, RowVisitor visit, void *context);

/* Runs a statement that writes or locks; its rows, if any, go to `visit` (may be NULL). Returns how many it touched.
 */
uint64 statement_write(Statement *statement, const Datum *values, RowVisitor visit, void *context);

/* A column's number. `known` is what it was in the row before: it holds until the table is another one. */
AttrNumber column_number(TupleDesc desc, const char *name, AttrNumber *known);

/* For Asserts: is SPI connected? */
bool in_spi(void);

/* Arrays for `= ANY($1)` and unnest(). */
Datum tid_array(ItemPointerData *tids, int n);
Datum int8_array(const int64 *values, int n);
Datum text_array(Datum *values, int n);
