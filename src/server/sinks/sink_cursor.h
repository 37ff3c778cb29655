/*
 * sink_cursor.h: sets a sink's cursor back (dispatch/sink_cursor.h), and publishes its low watermark, which views
 * read: at once when it has become lower.
 */
#pragma once

#include "server/sinks/worker_sinks.h"

/* All rows must be seen again. */
void sink_cursor_restart(WorkerSink *sink);

/* The row of this sink at this position was passed, and must be seen again. */
void sink_cursor_rewind(WorkerSink *sink, int64 position);

/* A row of the sink has come up at this position, or will: its low watermark is no higher. */
void low_watermark_lower(WorkerSink *sink, int64 position);

/* Publishes the low watermark if it has changed. */
void low_watermark_tell(WorkerSink *sink);
