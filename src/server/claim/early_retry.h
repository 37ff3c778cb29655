/* early_retry.h: claims events before they are due, when the reason for which they wait has ended. */
#pragma once

#include "server/sinks/worker_sinks.h"

extern "C" {
#include "utils/snapshot.h"
}

/* One read of the sink's pass (dispatch/early_retry.h), if one is under way. True when there are more rows. In SPI.
 */
bool scan_early_retry(WorkerSink *sink, Snapshot snapshot);
