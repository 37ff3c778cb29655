/* batches.h: the events that a round has claimed for each sink, in order, until they are submitted. */
#pragma once

#include "server/inflight/events_in_flight.h"

/* The limit for the events of one round, in bytes. Until its commit each of them also exists as a row and as a copy.
 */
#define ROUND_BYTES (4 * 1024 * 1024)

/* At the start of a round: empties all batches. Their memory stays valid until the next call, also while the worker
 * waits for a standby. */
void batches_begin(void);

/* Frees the memory of events that were larger than a round usually is, unless batches are still held. */
void batches_release_large(void);

/* Returns the place for the sink's next event, which batch_add() then adds. */
ob_event *batch_next(WorkerSink *sink);
void batch_add(WorkerSink *sink, InFlightEvent *event);

/* Takes the events that were dropped (NULL) out of the batch. */
void batch_close_ranks(WorkerSink *sink);
