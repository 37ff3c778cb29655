/* library_version.h: which version of the extension this library is made for, and what other versions may do with it.
 */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "access/tupdesc.h"
#include "nodes/execnodes.h"
}

/* As in outbox.control. */
const char *library_version(void);

/* The version of an extension of this database; false when there is none of that oid. */
bool extension_version(Oid extension, char *version, size_t size);

/* The row type that the function was declared with, of which we fill so many columns from the left: an earlier
 * version of the extension has fewer. An error for what is declared with more, or is no row. */
TupleDesc row_type_of(FunctionCallInfo fcinfo, int columns);

/* The same for a function that returns a set: where its rows go, by tuplestore_putvalues(). */
ReturnSetInfo *rows_of(FunctionCallInfo fcinfo, int columns);
