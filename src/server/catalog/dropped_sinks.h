/*
 * dropped_sinks.h: remembers the sinks that were dropped last, so that doctor() and story() can say where such events
 * went before, and who dropped the sink.
 */
#pragma once

#include "server/base/server.h"

/* The options for routing of a server's options, as text[]. In the current context. */
Datum dropped_sink_options(Datum options, bool isnull);

/* Both in a transaction. They do nothing while the table is missing: before an upgrade of the extension. */
void dropped_sinks_add(const char *sink, const char *kind, Datum options, const char *role);
void dropped_sinks_forget(const char *sink);
