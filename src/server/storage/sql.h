/*
 * sql.h: prepares statements once. The worker's are run through SPI here, and each row is passed to a visitor as the
 * executor returns it; sessions run theirs with owner_execute().
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
  const Oid *args;
  SPIPlanPtr plan; /* NULL until first run */
} Statement;

template <Oid... TYPES> inline constexpr Oid statement_types[] = {TYPES..., InvalidOid};

/* A statement with parameters of these types, for a static variable: make_statement<INT8OID>("... $1 ..."). */
template <Oid... TYPES> constexpr Statement make_statement(const char *sql) {
  return {sql, (int)sizeof...(TYPES), statement_types<TYPES...>, NULL};
}

/* Called for each row; returning false ends the statement early. The row's values are valid until it returns. */
typedef bool (*SlotVisitor)(TupleTableSlot *row, void *context);

/* Runs a read-only statement with this snapshot (InvalidSnapshot: the transaction's) and passes every row to `visit`.
 * In SPI.
 */
void statement_read(Statement *statement, const Datum *values, Snapshot snapshot, SlotVisitor visit, void *context);

/* Runs a statement that writes or locks, and passes the rows that it returns to `visit`, which may be NULL. Returns
 * the number of rows that it processed. In SPI.
 */
uint64 statement_write(Statement *statement, const Datum *values, SlotVisitor visit, void *context);

/* Returns the number of the column with this name. `known` caches it for the next row; it is checked against the
 * name. */
AttrNumber column_number(TupleDesc desc, const char *name, AttrNumber *known);

/* Is SPI connected? For Asserts. */
bool in_spi(void);

/* Arrays for `= ANY($1)` and unnest(). */
Datum tid_array(ItemPointerData *tids, int n);
Datum int8_array(const int64 *values, int n);
Datum text_array(Datum *values, int n);
