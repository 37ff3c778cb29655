/*
 * sink_ddl.h: what DDL did to foreign servers that are sinks, and what follows for the tables that know sinks by name
 * (outbox.stopped_sinks, failing_sinks, renamed_sinks). It goes by the rows of the catalogs: a command with IF [NOT]
 * EXISTS may have been skipped before any right was looked at, and servers also go by DROP OWNED or a CASCADE.
 */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "catalog/objectaccess.h"
}

/* Registers the transaction callbacks. Called from _PG_init. */
void sink_ddl_init(void);

/* Part of the object access hook: notes what a command does to a server or to a user mapping for PUBLIC. */
void sink_ddl_note(ObjectAccessType access, Oid class_id, Oid object_id);

/* After each utility command: writes down what was noted, and warns of the events of a sink that was dropped. */
void sink_ddl_apply(void);
