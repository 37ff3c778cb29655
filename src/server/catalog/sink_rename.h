/*
 * sink_rename.h: ALTER SERVER ... RENAME. Rows contain their sink's name, also rows of transactions that commit after
 * the rename. So the rename stores the former name, and the worker finds the sink by it; rows are not rewritten.
 */
#pragma once

#include "server/base/server.h"

/* The name now belongs to a sink: removes it from the former names. In a transaction. */
void sink_rename_claim(const char *name);

/* Stores the former name, and points older names of the sink to the new one. In a transaction. */
void sink_rename_record(const char *old_name, const char *new_name);
