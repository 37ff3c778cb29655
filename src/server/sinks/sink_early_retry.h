/* sink_early_retry.h: asks a sink whether the reason for which its events wait has ended. */
#pragma once

#include "server/sinks/worker_sinks.h"

/* If so, begins a pass of early retries (dispatch/early_retry.h). The sink must be open. */
void early_retry_look(WorkerSink *sink, TimestampTz now);
