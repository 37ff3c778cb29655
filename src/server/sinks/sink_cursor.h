/*
 * sink_cursor.h: lets a sink's cursor begin anew (dispatch/sink_cursor.h), and publishes its low watermark, which
 * views read: at once when it has become lower.
 */
#pragma once

#include "server/sinks/worker_sinks.h"

/* The scan of the sink restarts from the first row. */
void sink_cursor_restart(WorkerSink *sink);

/* A row of the sink is or will be pending at this position: lowers the low watermark to it. */
void low_watermark_lower(WorkerSink *sink, int64 position);

/* Publishes the low watermark if it has changed. */
void low_watermark_tell(WorkerSink *sink);
