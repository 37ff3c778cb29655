/*
 * stopped_sinks.h: sinks that deliver nothing until outbox.resume(), as sessions see them: outbox.stopped_sinks
 * follows what DDL does to the servers (sink_ddl.h). What the worker makes of it: worker_stops.h.
 */
#pragma once

#include "server/base/server.h"

/* Its rows are deleted: the sink is gone, or is another one of the same name. */
void stopped_sinks_forget(const char *sink);

void stopped_sinks_rename(const char *sink, const char *new_name);

/* The options of the server or of its user mapping have changed: ends `disabled`, and no pause. */
void stopped_sinks_enable(const char *sink);
