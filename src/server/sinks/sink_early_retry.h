/* sink_early_retry.h: asks a sink whether something is over for which its events wait. */
#pragma once

#include "server/sinks/worker_sinks.h"

/* A pass of early retries (dispatch/early_retry.h) begins if so. The sink is open. */
void early_retry_look(WorkerSink *sink, TimestampTz now);
