/*
 * stopped_sinks.h: keeps outbox.stopped_sinks in step with DDL on servers (sink_ddl.h). Its sinks deliver nothing
 * until outbox.resume(). worker_stops.h has the worker's part.
 */
#pragma once

#include "server/base/server.h"

/* Deletes the rows of a sink that was dropped, or created anew under the same name. In a transaction, as the other
 * functions. */
void stopped_sinks_forget(const char *sink);

/* Renames the sink in its rows. */
void stopped_sinks_rename(const char *sink, const char *new_name);

/* Ends the state `disabled`, and no pause, because the options of the server or its user mapping have changed. */
void stopped_sinks_enable(const char *sink);
