/* catalog_row.h: reads a catalog row as the running command has written it. */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "access/attnum.h"
#include "access/htup.h"
}

/* Returns a palloc'd copy of the row with this OID, with the running command's own changes, or NULL when there is no
 * such row. In a transaction. */
HeapTuple catalog_row_as_written(Oid catalog, Oid index, AttrNumber key_column, Oid oid);
