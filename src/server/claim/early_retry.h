/* early_retry.h: claims events that wait for something of their sink, and need not any longer. */
#pragma once

#include "server/sinks/worker_sinks.h"

extern "C" {
#include "utils/snapshot.h"
}

/* True when there are more. In SPI. */
bool scan_resumed(WorkerSink *sink, Snapshot snapshot);
