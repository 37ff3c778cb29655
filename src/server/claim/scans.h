/* scans.h: the scans by which a round finds rows. All functions run in SPI. */
#pragma once

#include "server/sinks/worker_sinks.h"

extern "C" {
#include "utils/snapshot.h"
}

/* Rows in order of position, for all sinks. True when there are more. */
bool scan_main(Snapshot snapshot);

/* Rows of transactions that committed late. */
void scan_late(WorkerSink *sink, Snapshot snapshot);

/* Marked rows of draining keys. True when there are more. */
bool scan_draining(WorkerSink *sink, Snapshot snapshot);

/* Rows that are due. True when there are more. */
bool scan_due(WorkerSink *sink, Snapshot snapshot);
