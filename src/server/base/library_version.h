/* library_version.h: the version of this library, and checks against the version of the extension. */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "access/tupdesc.h"
#include "nodes/execnodes.h"
}

/* The library's version: equal to default_version in outbox.control. */
const char *library_version(void);

/* Copies the version of this database's extension with that OID; false when there is no such extension. In a
 * transaction. */
bool extension_version(Oid extension, char *version, size_t size);

/* Returns the row type with which the function was declared. The caller fills the first `columns` columns; an earlier
 * version of the extension may declare fewer. Raises an error when the result has more columns or is no row. */
TupleDesc row_type_of(FunctionCallInfo fcinfo, int columns);

/* Prepares a function that returns a set; the caller adds rows by tuplestore_putvalues(). Raises an error when the
 * set has more than `columns` columns. */
ReturnSetInfo *rows_of(FunctionCallInfo fcinfo, int columns);
