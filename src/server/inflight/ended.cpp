/*
 * ended.cpp: outcomes are collected for 20 ms, or up to 2,000 of them, before they are recorded. The delay costs
 * nothing, since no session waits for the recording. Fewer asynchronous commits of the worker then share a commit-log
 * group with applications' transactions, whose flush the worker would have to wait for.
 */
#include "server/inflight/ended.h"

#include "server/inflight/blocking.h"
#include "server/sinks/worker_sinks.h"

static const int RECORD_DELAY_MS = 20;
static const int RECORD_BATCH = 2000;

static Moment record_at = MOMENT_NEVER;
static int newly_ended = 0;

void ended_note(Moment now) {
  newly_ended++;
  record_at = Min(record_at, moment_after(now, RECORD_DELAY_MS));
}

void ended_suspect(Moment record_after) {
  record_at = Min(record_at, record_after);
}

void ended_fail(InFlightEvent *event, int64 pause_ms, const char *error, Now now) {
  worker_sink_event_ended(sink_of(event), event->bytes);
  in_flight().end(event, Outcome::DEFERRED, pause_ms, error, now.wall);
  if (sink_of(event)->common.ordered)
    key_block(sink_of(event)->oid, event->key_hash, event->position);
  ended_note(now.moment);
}

bool ended_any_unrecorded(void) {
  return newly_ended > 0;
}

bool ended_record_is_due(Moment now) {
  return newly_ended >= RECORD_BATCH || record_at <= now;
}

Moment ended_record_at(void) {
  return record_at;
}

void ended_recorded(bool committed) {
  if (committed)
    newly_ended = 0;
  record_at = in_flight().next_recording();
}
