/* streams.h: the ways by which rows come before the judge, each in order of position. All in SPI. */
#pragma once

#include "server/sinks/worker_sinks.h"

extern "C" {
#include "utils/snapshot.h"
}

/* In order of position, for all sinks; true when there is more. */
bool stream_main(Snapshot snapshot);

/* Of transactions that committed late. */
void stream_late(WorkerSink *sink, Snapshot snapshot);

/* Behind keys that drain; true when there is more. */
bool stream_draining(WorkerSink *sink, Snapshot snapshot);

/* Due by their time; true when there is more. */
bool stream_due(WorkerSink *sink, Snapshot snapshot);
