/*
 * sink_signals.cpp: the state of a sink, its last error and its failures by reason, for outbox.sinks and the metrics.
 */
#include "server/sinks/sink_signals.h"

#include "server/sinks/sink_state.h"

#include "dispatch/recording.h"

#include <utility>

/* "idle" becomes "failing" in outbox.sinks if the rows say so: this process knows only of its own deliveries. */
void sink_signals_publish(WorkerSink *sink, int worker, TimestampTz now, bool waits_for_standby) {
  SinkStats *stats = sink->stats;
  const SinkSignal state = sink->stopped                                ? SIGNAL_STOPPED
                           : sink->state == SINK_MISCONFIGURED          ? SIGNAL_MISCONFIGURED
                           : sink->status.state == OB_SINK_CIRCUIT_OPEN ? SIGNAL_CIRCUIT_OPEN
                           : sink->status.state == OB_SINK_DISABLED     ? SIGNAL_DISABLED
                           : waits_for_standby                          ? SIGNAL_WAITING_FOR_STANDBY
                           : sink->status.state == OB_SINK_DEGRADED     ? SIGNAL_DEGRADED
                           : sink->in_flight > 0                        ? SIGNAL_DELIVERING
                                                                        : SIGNAL_IDLE;
  const char *error = sink->handle == NULL ? sink->open_error : sink->status.last_error;

  if (stats == NULL || sink->state == SINK_CLOSING || sink->state == SINK_DROPPING)
    return;
  stats->in_flight[worker % OUTBOX_COUNTED_WORKERS] = sink->in_flight;
  const int64 paused_ms = sink->state == SINK_OPEN ? sink->status.paused_ms : 0;
  stats->paused_until[worker % OUTBOX_COUNTED_WORKERS] = paused_ms > 0 ? now + paused_ms * 1000 : 0;
  shared_sink_unrecorded(stats, worker, {(uint32)sink->not_recorded, (uint32)sink->sent_not_recorded},
                         dispatch::Recording::is_stuck(&sink->events), sink->record_error, now);
  stats->state[worker % OUTBOX_COUNTED_WORKERS] = state; /* the engine logs its changes */
  if (error[0] != '\0' && strncmp(stats->last_error, error, sizeof(stats->last_error) - 8) != 0)
    shared_sink_error(stats, error, now);
}

void sink_signals_count(WorkerSink *sink) {
  if (sink->status.n_failures == sink->n_failures && sink->status.unanswered == sink->unanswered)
    return;
  sink->n_failures = sink->status.n_failures;
  const uint64 unanswered = sink->status.unanswered - std::exchange(sink->unanswered, sink->status.unanswered);
  if (sink->stats) {
    LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE);
    sink->stats->unanswered += unanswered;
    for (int reason = 0; reason < OB_REASONS; reason++)
      sink->stats->failures[reason] += sink->status.failures[reason] - sink->failures[reason];
    LWLockRelease(shared_state()->lock);
  }
  memcpy(sink->failures, sink->status.failures, sizeof(sink->failures));
}
