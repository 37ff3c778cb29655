/*
 * sink_rename.h: ALTER SERVER ... RENAME. Rows carry their sink's name, also those of transactions that commit later:
 * so the former name is written down with the rename, and the worker goes on by it. No row is rewritten for it.
 */
#pragma once

#include "server.h"

extern "C" {
#include "nodes/parsenodes.h"
}

/* Is it a server of one of our wrappers? Needs a transaction. */
bool is_sink(const char *server);

/* Is it about a server that is a sink? To be asked before the statement runs. */
bool sink_rename_concerns(Node *statement);

/* After it has run. */
void sink_rename_note(Node *statement);
