/*
 * sink_rename.h: ALTER SERVER ... RENAME. Rows name their sink, so the RENAME gives them the new name.
 */
#pragma once

#include "server/base/server.h"

/* Gives the sink's pending events and dead letters its new name. Until the transaction ends, nobody writes or locks
 * such rows. An error when there are too many of them, when rows have the new name already, or when the lock of the
 * tables takes too long. In a transaction. */
void sink_rename_rows(const char *old_name, const char *new_name);

/* The number of pending events with this name. In a transaction. */
int64 sink_pending_rows(const char *name);
