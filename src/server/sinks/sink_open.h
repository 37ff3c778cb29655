/* sink_open.h: opens a sink in the delivery library, or starts a probe of it, with the options that the catalog had.
 */
#pragma once

#include "server/sinks/sink_options.h"
#include "server/sinks/worker_sinks.h"

/* The sink becomes SINK_OPEN, or SINK_MISCONFIGURED until `reopen_at`, which returns false: a new error is logged. It
 * is opened later, and its state stays, as long as its client's key is being opened. Outside a transaction. */
bool sink_open(ob_engines *engine, WorkerSink *sink, const SinkOptions *given, Moment now);

/* The options that all kinds have, by which the worker itself goes. When they may have changed, and again when the
 * sink is open: the kind reads them, and its library may have been missing. */
void sink_read_common_options(WorkerSink *sink, const SinkOptions *given);

/* As worker_sink_probe(). */
ob_probe *sink_probe(ob_engines *engine, const WorkerSink *sink, const SinkOptions *given, int timeout_ms, bool send,
                     const char *topics, ob_error *error);
