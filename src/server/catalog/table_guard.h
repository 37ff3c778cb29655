/*
 * table_guard.h: who may have code run within statements on the extension's tables. Those statements run with their
 * owner's rights (enqueue(), the SECURITY DEFINER functions, the worker), so a TRIGGER right alone, which GRANT ALL
 * ON ALL TABLES includes, would give its holder all of the owner's.
 */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "catalog/objectaccess.h"
}

/* From the object access hook: refuses a sequence of positions that would lose their order, triggers and foreign keys
 * of others than the owner, and owners that are no superusers. */
void table_guard(ObjectAccessType access, Oid class_id, Oid object_id);
