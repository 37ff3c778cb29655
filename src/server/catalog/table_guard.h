/*
 * table_guard.h: limits whose code runs within statements on the extension's tables. Those statements run with the
 * owner's privileges (enqueue(), the SECURITY DEFINER functions, the worker), so the TRIGGER privilege, which GRANT
 * ALL ON ALL TABLES includes, would give its holder all privileges of the owner.
 */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "catalog/objectaccess.h"
}

/* From the object access hook. Raises an error for a change of the position sequence that would break the order of
 * positions, for triggers and foreign keys that another role than the owner creates, and for a new owner that is no
 * superuser. */
void table_guard(ObjectAccessType access, Oid class_id, Oid object_id);
