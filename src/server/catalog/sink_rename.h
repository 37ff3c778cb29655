/*
 * sink_rename.h: ALTER SERVER ... RENAME. Rows name their sink, so the RENAME gives them the new name.
 */
#pragma once

#include "server/base/server.h"

/* Registers the transaction callbacks. Called from _PG_init. */
void sink_rename_init(void);

/* Gives the sink's pending events and dead letters its new name: those that this transaction sees at once, without a
 * lock of the tables, and what other transactions commit meanwhile when this one commits. An error when there are too
 * many of them, when rows have the new name already, or when other sessions lock rows for too long. In a transaction.
 */
void sink_rename_rows(Oid server, const char *old_name, const char *new_name);

/* The number of pending events with this name. In a transaction. */
int64 sink_pending_rows(const char *name);
