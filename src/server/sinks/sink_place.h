/* sink_place.h: how far a sink has come: remembered at the start of a round, gone back to, begun anew. */
#pragma once

#include "server/sinks/worker_sinks.h"

/* Remembers, in a context that outlives an abort, how far the sink has come; and goes back to there. */
void worker_sink_begin_round(WorkerSink *sink, MemoryContext context);
bool worker_sink_advanced(const WorkerSink *sink); /* its cursor */
void worker_sink_give_back(WorkerSink *sink);

/* All rows must be seen again. */
void worker_sink_restart(WorkerSink *sink);

/* A row of this sink that was passed must be seen again. */
void worker_sink_rewind(WorkerSink *sink, int64 position);

/* A row of the sink has come up at that position, or will: its low watermark (claim/known_below.h) is no higher. At
 * once, since views read it. */
void known_below_lower(WorkerSink *sink, int64 position);

/* Publishes it. */
void known_below_tell(const WorkerSink *sink);
