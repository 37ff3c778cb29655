/* batches.h: what a round has claimed for each sink, in order, until it is submitted. */
#pragma once

#include "server/inflight/in_flight.h"

/* A round claims events of at most this size: until its commit each event exists twice more, as a row and as a copy.
 */
#define ROUND_BYTES (4 * 1024 * 1024)

/* A round begins: all batches are empty. Their memory is kept while a synchronous standby is waited for. */
void batches_begin(void);

/* Where the sink's next event goes; it counts once it is added. */
ob_event *batch_next(WorkerSink *sink);
void batch_add(WorkerSink *sink, InFlightEvent *event);
