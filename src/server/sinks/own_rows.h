/* own_rows.h: decides which rows this worker delivers. */
#pragma once

#include "server/event/event_row.h"
#include "server/sinks/worker_sinks.h"

/* Once: sets the origin of the rows that this worker delivers. */
void own_rows_init(int64 origin);

/* Does the row have that origin? */
bool row_has_our_origin(const EventRow *row);

/* Does this worker deliver the row? Sets `*sink` to the row's sink, or to NULL if the worker has none of that name.
 */
bool row_is_ours(const EventRow *row, WorkerSink **sink);
