/*
 * sink_early_retry.cpp: the delivery library knows when a missing topic was created, or an outage has ended. The next
 * claims then read the sink's waiting events (dispatch/early_retry.h).
 */
#include "server/sinks/sink_early_retry.h"

#include "server/base/error_text.h"
#include "server/sinks/dispatcher.h"

/* Do the rows of all events that have failed say so? */
static bool all_recorded(const WorkerSink *sink) {
  for (const dispatch::InFlightEvent *event : dispatcher().in_flight.ended())
    if (event->sink == &sink->events && event->outcome != dispatch::Outcome::SENT && !dispatch::is_recorded(event))
      return false;
  return true;
}

void early_retry_look(WorkerSink *sink, TimestampTz now) {
  dispatch::EarlyRetry *early_retry = &sink->cursor->early_retry;
  char reason[dispatch::EarlyRetry::REASON_MAX];

  early_retry->outage(sink->status.outage_ms, now);
  early_retry->pause(sink->status.paused_ms, !early_retry->ends_pause() || all_recorded(sink), now);
  if (early_retry->going() || !sink->handle->kind->sink_next_resumed(sink->handle, reason, sizeof(reason)))
    return;
  library_text(reason); /* as last_error has it */
  early_retry->begin(reason, now);
}
