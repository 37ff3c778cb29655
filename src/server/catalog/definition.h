/* definition.h: the tables, columns and indexes of the extension, as the install script makes them. */
#pragma once

#include "server/base/server.h"

/* Is it the name of a table, view, sequence or function of the schema? Only tables and sequences are known by name.
 */
bool defined_relation(const char *schema, const char *name);

/* Has the table such a column? `column` is its name and type, as "sink text "C"" with a collation. False for a table
 * that the extension does not have. */
bool defined_column(const char *schema, const char *table, const char *column);

bool defined_index(const char *name);
