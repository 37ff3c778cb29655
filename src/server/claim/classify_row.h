/* classify_row.h: takes a row that a scan has read into its sink's batch, or leaves it. */
#pragma once

#include "server/event/event_row.h"
#include "server/sinks/dispatcher.h"
#include "server/sinks/worker_sinks.h"

#include "dispatch/classify_row.h"

using dispatch::RowScan;
using dispatch::RowVerdict;

/* Decides about one row of the running round: it is claimed, or what must be remembered of it is. `*sink` is its
 * sink, or NULL; STOP without a sink: the sinks that take the event wait until it is routed. */
RowVerdict classify_row(const EventRow *row, RowScan scan, WorkerSink **sink);
