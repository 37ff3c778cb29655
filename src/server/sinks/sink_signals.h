/*
 * sink_signals.h: what this worker knows of a sink is shown in shared memory, where outbox.sinks and the metrics read
 * it. `worker` is the number of the worker. Main thread.
 */
#pragma once

#include "server/sinks/worker_sinks.h"

void sink_signals_publish(WorkerSink *sink, int worker, TimestampTz now, bool waits_for_standby);

/* Adds the failures since the last call to the counters, by reason. */
void sink_signals_count(WorkerSink *sink);
