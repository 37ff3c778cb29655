/*
 * sink_rename.h: ALTER SERVER ... RENAME. Rows contain their sink's name, also rows of transactions that commit after
 * the rename. So the rename stores the former name, and the worker finds the sink by it; rows are not rewritten.
 */
#pragma once

#include "server/base/server.h"

/* The name now belongs to another sink: removes it from the former names. An error while pending events or dead
 * letters of the sink that had it still have this name, because they would go to the other one. In a transaction. */
void sink_rename_claim(const char *name);

/* Has a sink with the former name this present name? In a transaction. */
bool sink_rename_is_recorded(const char *old_name, const char *new_name);

/* Stores the former name, and points older names of the sink to the new one. In a transaction. */
void sink_rename_record(const char *old_name, const char *new_name);
