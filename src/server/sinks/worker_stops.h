/*
 * worker_stops.h: stops sinks that outbox.stopped_sinks names, and disables sinks that have failed for the option
 * disable_after. A stopped sink is closed; its events wait in the table and cost the worker nothing.
 *
 * The time for which a sink has failed is the sum of the times from one failed try to the next, over all workers, in
 * shared memory. A time of more than one day between two tries, or in which the server was down, does not count. The
 * first success resets it. It is written to outbox_internal.failing_sinks at intervals of up to 10 min, so that it
 * survives a restart: in memory alone, a server that is restarted or fails over at least every five days, the default
 * of disable_after, would never disable a dead endpoint.
 */
#pragma once

#include "server/sinks/worker_sinks.h"

/* Once. `changed` is called when outbox.stopped_sinks has changed. */
void worker_stops_init(void (*changed)(void));

/* Stops and resumes sinks as outbox.stopped_sinks says. In a transaction, after the catalog was read. */
void worker_stops_reload(void);

/* The sink's options have changed: resets its failing time, since another endpoint failed before. */
void worker_stops_altered(WorkerSink *sink);

/* In each loop: counts the failed tries of the sink's status. It runs no SQL. */
void worker_stops_look(WorkerSink *sink, Now now);

/* Disables sinks and writes failing times that are due, in a transaction of its own. Returns false when the catalog
 * must be read before, because a sink may have another name now. Outside a transaction. */
bool worker_stops_write(Moment now);

/* Events were delivered: resets the failing time. The lock of shared memory must be held exclusively. */
void worker_stops_succeeded(SinkStats *stats);
