/*
 * sink_rename.h: ALTER SERVER ... RENAME. Rows carry their sink's name, also those of transactions that commit later:
 * so the former name is written down with the rename, and the worker goes on by it. No row is rewritten for it.
 */
#pragma once

#include "server/base/server.h"

/* The name is a sink's own now, and leads nowhere else. */
void sink_rename_claim(const char *name);

void sink_rename_record(const char *old_name, const char *new_name);
