/* sink_early_retry.h: is something over for which events of a sink wait? */
#pragma once

#include "server/sinks/worker_sinks.h"

/* Whatever its events wait for, they try anew. */
void early_retry_all(WorkerSink *sink, TimestampTz now);
/* Asks the open sink whether something is over for which events wait. */
void early_retry_look(WorkerSink *sink, TimestampTz now);
/* One of them came back unsent. */
void early_retry_returned(WorkerSink *sink);
