/*
 * definition_guard.h: refuses changes of the extension's schemas, tables, columns, indexes and functions after which
 * its statements would fail or lose events. Whatever else PostgreSQL allows on a table stays allowed: indexes,
 * constraints, triggers, storage parameters, tablespaces, publications.
 */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "catalog/objectaccess.h"
#include "nodes/parsenodes.h"
}

/* From the object access hook, whose argument is `arg`. Raises an error for a new name or schema, a new, changed or
 * dropped column, and a detached partition that is a member of the extension. */
void definition_guard(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg);

/* Before a utility statement. Raises an error for what no hook tells, or only when a large table has been copied: SET
 * UNLOGGED, and dropping an index, a constraint or a trigger of the extension's. */
void definition_guard_statement(Node *statement);
