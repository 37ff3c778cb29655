/*
 * sink_ddl.h: follows DDL on foreign servers that are sinks, and updates the tables that contain names of sinks
 * (outbox.events, outbox.stopped_sinks, failing_sinks). It compares catalog rows instead of commands: a command with
 * IF [NOT] EXISTS may have changed nothing, and DROP OWNED or CASCADE drop servers too.
 */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "catalog/objectaccess.h"
}

/* Registers the transaction callbacks. Called from _PG_init. */
void sink_ddl_init(void);

/* From the object access hook: notes a command's change of a server or of a user mapping for PUBLIC. */
void sink_ddl_note(ObjectAccessType access, Oid class_id, Oid object_id);

/* After each utility command: applies the noted changes to the tables, and warns of pending events of a dropped sink.
 */
void sink_ddl_apply(void);
