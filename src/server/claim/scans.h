/* scans.h: the ways by which a round comes across rows, each in order of position. All in SPI. */
#pragma once

#include "server/sinks/worker_sinks.h"

extern "C" {
#include "utils/snapshot.h"
}

/* In order of position, for all sinks; true when there is more. */
bool scan_main(Snapshot snapshot);

/* Of transactions that committed late. */
void scan_late(WorkerSink *sink, Snapshot snapshot);

/* Behind keys that drain; true when there is more. */
bool scan_draining(WorkerSink *sink, Snapshot snapshot);

/* Due by their time; true when there is more. */
bool scan_due(WorkerSink *sink, Snapshot snapshot);
