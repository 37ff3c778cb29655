/*
 * stopped_sinks.h: sinks that deliver nothing until outbox.resume(), as sessions see them: outbox.stopped_sinks
 * follows what DDL does to the servers. What the worker makes of it: worker_stops.h.
 */
#pragma once

#include "server.h"

extern "C" {
#include "nodes/parsenodes.h"
}

/* Is the statement about a sink that may be stopped? To be asked before it runs; and what is to be done after it. */
bool stopped_sinks_concerns(Node *statement);
void stopped_sinks_note(Node *statement);
