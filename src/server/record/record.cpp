/*
 * record.cpp: runs rounds of recording (dispatch/round/record_round.h) with this server as their port, and counts
 * what was recorded. Own commits are asynchronous: if a crash loses one, its events are sent again, which
 * at-least-once allows.
 */
#include "server/record/record.h"

#include "server/base/is_worker.h"
#include "server/inflight/decision_log.h"
#include "server/inflight/events_in_flight.h"
#include "server/inflight/sink_log.h"
#include "server/record/record_table.h"
#include "server/record/day_partition.h"
#include "server/sinks/worker_stops.h"
#include "server/storage/sql.h"

#include "dispatch/round/record_round.h"

extern "C" {
#include "access/xact.h"
#include "access/xlog.h"
#include "common/pg_prng.h"
}

static RecordTable &port(void) {
  static RecordTable the_port;

  return the_port;
}

static dispatch::RecordRound record_round(void) {
  return {dispatcher(), port()};
}

/* ---- the port ----------------------------------------------------------------------------------------------- */

dispatch::Retention RecordTable::retention_of(const InFlightEvent &event) {
  return event.outcome == Outcome::SENT && sink_of(&event)->keeps_delivered ? sent_day_retention(now_)
                                                                            : dispatch::Retention::NONE;
}

int64_t RecordTable::retry_delay_ms(const InFlightEvent &event) {
  return ob_retry_delay_ms(sink_of(&event)->common.retry, event.attempts + 1, event.slow_retry,
                           pg_prng_uint64(&pg_global_prng_state));
}

void RecordTable::flush_recordings() {
  in_flight_flush_recordings();
}

/* ---- a round ------------------------------------------------------------------------------------------------ */

void record_ended(Now now) {
  Assert(server_is_worker && IsTransactionState());
  port().begin(now);
  sent_day_begin();
  SPI_connect();
  record_round().run(now);
  SPI_finish();
}

static void tell_error(WorkerSink *sink, const char *error, TimestampTz now) {
  strlcpy(sink->record_error, error, sizeof(sink->record_error));
  if (sink->stats)
    shared_sink_error(sink->stats, error, now);
}

bool record_rolled_back(Now now, const char *error, bool of_rows) {
  Assert(!IsTransactionState());
  const dispatch::Recording::Failure failure = record_round().rolled_back(error != NULL, of_rows);

  if (failure.culprit)
    tell_error(sink_of(failure.culprit), error, now.wall);
  for (WorkerSink *sink : worker_sinks_all())
    if (error && !failure.try_others && sink->left > 0)
      strlcpy(sink->record_error, error, sizeof(sink->record_error));
  return failure.try_others;
}

/* ---- counters ---------------------------------------------------------------------------------------------- */

static void count_event(const InFlightEvent *event) {
  SinkStats *stats = sink_of(event)->stats;

  if (stats == NULL)
    return;
  if (event->outcome == Outcome::SENT) {
    stats->delivered++;
    if (event->late)
      stats->redriven_late++;
    latency_add(&stats->latency, event->ended_at - event->due_since);
    return;
  }
  if (event->outcome == Outcome::RETRY)
    stats->retried++;
  else if (event->outcome == Outcome::REJECTED)
    stats->failed++;
}

/* The event's name for the log. */
static Decision decision_of(const InFlightEvent *event) {
  return event->state == EventState::GONE      ? EVENT_GONE
         : event->outcome == Outcome::SENT     ? EVENT_DELIVERED
         : event->outcome == Outcome::REJECTED ? EVENT_DEAD
                                               : EVENT_FAILED;
}

bool record_committed(Now now) {
  Assert(!IsTransactionState());
  std::span<WorkerSink *> sinks = worker_sinks_all();
  uint64 *before = (uint64 *)palloc0(sizeof(uint64) * Max(sinks.size(), 1));

  LWLockAcquire(shared_state()->lock, LW_EXCLUSIVE); /* several workers count for one sink */
  for (size_t i = 0; i < sinks.size(); i++)
    before[i] = sinks[i]->stats ? sinks[i]->stats->delivered : 0;
  for (InFlightEvent *event : in_flight().ended())
    if (is_recorded(event))
      count_event(event);
  for (size_t i = 0; i < sinks.size(); i++) {
    if (sinks[i]->stats == NULL)
      continue;
    if (sinks[i]->stats->delivered != before[i])
      worker_stops_succeeded(sinks[i]->stats);
    shared_sink_rate(sinks[i]->stats, sinks[i]->stats->delivered - before[i], now.moment);
  }
  LWLockRelease(shared_state()->lock);
  for (InFlightEvent *event : in_flight().ended()) {
    if (is_recorded(event))
      decision_log(decision_of(event), event->position, sink_of(event)->name,
                   event->outcome == Outcome::DEFERRED ? "no attempt is spent" : NULL, 0);
    if (is_recorded(event) && event->outcome != Outcome::SENT && event->error) {
      if (sink_of(event)->stats)
        shared_sink_error(sink_of(event)->stats, event->error, now.wall);
      if (event->state != EventState::GONE)
        sink_log_count_failed(event);
    }
  }
  return record_round().committed(XactLastCommitEnd);
}
