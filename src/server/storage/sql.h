/*
 * sql.h: prepares the worker's statements once, runs them through SPI, and passes each row to a visitor as the
 * executor returns it.
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

/* Called for each row; returning false ends the statement early. The row's values are valid until it returns. */
typedef bool (*RowVisitor)(TupleTableSlot *row, void *context);

/* Runs a read-only statement with this snapshot (InvalidSnapshot: the transaction's) and passes every row to `visit`.
 * In SPI.
 */
void statement_read(Statement *statement, const Datum *values, Snapshot snapshot, RowVisitor visit, void *context);

/* Runs a statement that writes or locks, and passes the rows that it returns to `visit`, which may be NULL. Returns
 * the number of rows that it processed. In SPI.
 */
uint64 statement_write(Statement *statement, const Datum *values, RowVisitor visit, void *context);

/* Returns the number of the column with this name. `known` caches it for the next row; it is checked against the
 * name. */
AttrNumber column_number(TupleDesc desc, const char *name, AttrNumber *known);

/* Is SPI connected? For Asserts. */
bool in_spi(void);

/* Arrays for `= ANY($1)` and unnest(). */
Datum tid_array(ItemPointerData *tids, int n);
Datum int8_array(const int64 *values, int n);
Datum text_array(Datum *values, int n);
