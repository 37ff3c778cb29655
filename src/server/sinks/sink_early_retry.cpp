/*
 * sink_early_retry.cpp: the delivery library knows when a missing topic was created, or an outage has ended. The next
 * claims then read the sink's waiting events (dispatch/early_retry.h).
 */
#include "server/sinks/sink_early_retry.h"

#include "server/base/error_text.h"

void early_retry_look(WorkerSink *sink, TimestampTz now) {
  dispatch::EarlyRetry *early_retry = &sink->cursor->early_retry;
  char reason[dispatch::EarlyRetry::REASON_MAX];

  early_retry->outage(sink->status.outage_ms, now);
  if (early_retry->going() || !ob_sink_next_resumed(sink->handle, reason, sizeof(reason)))
    return;
  library_text(reason); /* as last_error has it */
  early_retry->begin(reason, now);
}
