/* own_rows.h: which rows this worker delivers. */
#pragma once

#include "server/event/event_row.h"
#include "server/sinks/worker_sinks.h"

/* Once: the rows of which origin are ours. */
void own_rows_init(int64 origin);

bool row_has_our_origin(const EventRow *row);

/* Is the row one that this worker delivers? `*sink` is its sink, or NULL. */
bool row_is_ours(const EventRow *row, WorkerSink **sink);
