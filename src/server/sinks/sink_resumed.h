/* sink_resumed.h: is something over for which events of a sink wait? */
#pragma once

#include "server/sinks/worker_sinks.h"

/* Whatever its events wait for, they try anew. */
void resumed_all(WorkerSink *sink, TimestampTz now);
/* Asks the open sink whether something is over for which events wait. */
void resumed_look(WorkerSink *sink, TimestampTz now);
/* One of them came back unsent. */
void resumed_returned(WorkerSink *sink);
