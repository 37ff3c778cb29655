/*
 * worker_stops.h: sinks that are stopped (outbox.stopped_sinks), and those that fail for so long that they will be. A
 * stopped sink is closed; its events wait in the table and cost the worker nothing.
 *
 * How long a sink has been failing is counted from one failed try to the next, over all workers, in shared memory:
 * time in which nothing was tried for a day, or in which the server was down, does not count. The first success ends
 * it. Now and then it is written to outbox_internal.failing_sinks, so that a restart does not begin anew.
 */
#pragma once

#include "server/sinks/worker_sinks.h"

void worker_stops_init(void (*changed)(void));

/* In a transaction, after the catalog was read: which sinks are stopped now. */
void worker_stops_reload(void);

/* Its options have changed: what failed before was another endpoint. */
void worker_stops_altered(WorkerSink *sink);

/* In each loop: what the sink's status says. It runs no SQL. */
void worker_stops_look(WorkerSink *sink, Now now);

/* Writes down what is to be: a transaction of its own, and rare. Outside a transaction. */
void worker_stops_write(Moment now);

/* Some were delivered. The lock of shared memory must be held exclusively. */
void worker_stops_succeeded(SinkStats *stats);
