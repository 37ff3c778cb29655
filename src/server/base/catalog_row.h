/* catalog_row.h: a look at what the running command has just written to a catalog. */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "access/attnum.h"
#include "access/htup.h"
}

/* A copy of the row with this OID as it stands now, when even the caches do not show it yet; NULL: none. */
HeapTuple catalog_row_as_written(Oid catalog, Oid index, AttrNumber key_column, Oid oid);
