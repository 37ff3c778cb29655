/*
 * worker_sleep.cpp: the worker sleeps until the earliest moment that one of its parts has asked for. Claims wait for
 * the end of the linger time and of a pause after an error, so those replace the moments of claims.
 */
#include "server/worker/worker_sleep.h"

#include "server/base/settings.h"
#include "server/claim/claim.h"
#include "server/inflight/events_in_flight.h"
#include "server/inflight/sink_log.h"
#include "server/process/worker_error.h"
#include "server/sinks/dispatcher.h"
#include "server/sinks/shard_handoff.h"
#include "server/sinks/worker_sinks.h"
#include "server/worker/exit_when_idle.h"
#include "server/worker/maintenance.h"
#include "server/worker/submit.h"

/* Completions are collected at this interval while a sink has more events to claim than room for them. */
static const int COLLECT_MS = 3;
/* The longest sleep while an event waits for a wall time, because the clock may be set. */
static const long CLOCK_CHECK_MS = 5000;
/* The longest sleep while events wait until the WAL of recordings is safe: nothing tells the worker of it. */
static const long WAL_CHECK_MS = 100;

long worker_sleep_ms(Now clock, bool claims_wanted, Moment polled_at) {
  const Moment now = clock.moment;
  long ms = submit_waits()  ? submit_pause_ms(now)
            : claims_wanted ? 0
                            : milliseconds_until(now, moment_after(polled_at, setting_poll_interval));

  if (!submit_waits()) {
    TimestampTz due = in_flight_is_full() ? DT_NOEND : worker_sinks_next_due();
    if (due != DT_NOEND) /* the clock may be set */
      ms = Min(ms, Min(milliseconds_until(now, moment_of_wall(clock, due)), CLOCK_CHECK_MS));
    if (in_flight_waits_for_wal() && claim_can_go_on(clock.wall))
      ms = Min(ms, WAL_CHECK_MS);
    ms = Min(ms, milliseconds_until(now, worker_sinks_next_moment(now)));
    ms = Min(ms, milliseconds_until(now, dispatcher().locked_rows.next_moment()));
  }
  ms = Min(ms, milliseconds_until(now, maintenance_next_moment()));
  ms = Min(ms, milliseconds_until(now, shards_next_moment()));
  if (now < dispatcher().linger.until()) /* commits do not wake the worker before */
    ms = milliseconds_until(now, dispatcher().linger.until());
  /* After an error, its pause is the shortest sleep. */
  ms = Max(ms, milliseconds_until(now, worker_pause_end(TASK_CLAIM)));
  ms = Min(ms, milliseconds_until(now, Max(dispatcher().recording.next_moment(), worker_pause_end(TASK_RECORD))));
  /* While completions are collected for one recording, further ones do not wake the worker; they are collected at
   * intervals. */
  if (dispatcher().recording.is_gathering() && dispatcher().sinks.any_starved())
    ms = Min(ms, COLLECT_MS);
  ms = Min(ms, milliseconds_until(now, idle_exit_next_moment(now)));
  return Min(ms, milliseconds_until(now, sink_log_next_moment()));
}
