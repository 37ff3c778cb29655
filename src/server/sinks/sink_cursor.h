/* sink_cursor.h: how far a sink has come: remembered at the start of a round, gone back to, begun anew. */
#pragma once

#include "server/sinks/worker_sinks.h"

/* Remembers, in a context that outlives an abort, how far the sink has come; and goes back to there. */
void sink_cursor_begin_round(WorkerSink *sink, MemoryContext context);
bool sink_cursor_advanced(const WorkerSink *sink); /* its cursor */
void sink_cursor_give_back(WorkerSink *sink);

/* All rows must be seen again. */
void sink_cursor_restart(WorkerSink *sink);

/* A row of this sink that was passed must be seen again. */
void sink_cursor_rewind(WorkerSink *sink, int64 position);

/* A row of the sink has come up at that position, or will: its low watermark (claim/low_watermark.h) is no higher. At
 * once, since views read it. */
void low_watermark_lower(WorkerSink *sink, int64 position);

/* Publishes it. */
void low_watermark_tell(const WorkerSink *sink);
