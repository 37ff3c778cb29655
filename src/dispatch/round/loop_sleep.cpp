/*
 * loop_sleep.cpp: the worker sleeps until the earliest moment that one of its parts has asked for. Claims wait for
 * the end of the linger time and of a pause after an error, so those replace the moments of claims.
 */
#include "dispatch/round/loop.h"

#include <algorithm>

namespace dispatch {

/* Completions are collected at this interval while a sink has more events to claim than room for them. */
static constexpr int64_t COLLECT_MS = 3;
/* The longest sleep while an event waits for a wall time, because the clock may be set. */
static constexpr int64_t CLOCK_CHECK_MS = 5000;
/* The longest sleep while events wait until the WAL of recordings is safe: nothing tells the worker of it. */
static constexpr int64_t WAL_CHECK_MS = 100;
/* The pause between looks at a standby grows with the wait, up to this time: a running standby confirms within 1 or
 * 2 ms, and a stopped one may stay away for hours. */
static constexpr int64_t STANDBY_CHECK_MS = 50;

/* When the first scheduled or retried event is due, of the sinks that have room. */
WallTime Loop::next_due() {
  WallTime due = WALL_TIME_NEVER;

  for (const RoundSink *sink : d_.sinks.all())
    if (port_.is_ready(*sink) && sink->cursor->free_places() > 0)
      due = std::min(due, sink->cursor->due.next());
  return due;
}

int64_t Loop::sleep_ms(Now clock) {
  const Moment now = clock.moment;
  const auto until = [now](Moment moment) -> int64_t { return milliseconds_until(now, moment); };
  int64_t ms = 0;

  if (waits_for_standbys()) {
    ms = std::clamp<int64_t>((now.us - waits_since_.us) / 1000 / 10, 1, STANDBY_CHECK_MS);
  } else {
    const bool full = port_.is_full();
    ms = claims_wanted_ ? 0 : until(moment_after(polled_at_, port_.poll_ms()));
    if (const WallTime due = full ? WALL_TIME_NEVER : next_due(); due != WALL_TIME_NEVER)
      ms = std::min({ms, until(moment_of_wall(clock, due)), CLOCK_CHECK_MS});
    if (full && d_.in_flight.unflushed.events() > 0 && port_.claim_round().can_go_on(clock.wall))
      ms = std::min(ms, WAL_CHECK_MS);
    ms = std::min({ms, until(port_.next_of_sinks(clock)), until(d_.locked_rows.next_moment())});
  }
  ms = std::min({ms, until(port_.next_task()), until(port_.next_of_shards())});
  if (const Moment lingers = d_.lingers_until(); now < lingers) /* commits do not wake the worker before */
    ms = until(lingers);
  /* After an error, its pause is the shortest sleep. */
  ms = std::max(ms, until(port_.pause_end(Task::CLAIM)));
  ms = std::min(ms, until(std::max(d_.recording.next_moment(), port_.pause_end(Task::RECORD))));
  /* While completions are collected for one recording, further ones do not wake the worker; they are collected at
   * intervals. */
  if (d_.recording.is_gathering() && d_.sinks.any_starved())
    ms = std::min(ms, COLLECT_MS);
  return std::min({ms, until(d_.idle_exit.next_moment(now, idleness(true))), until(port_.next_log_line())});
}

Idleness Loop::idleness(bool quiet) {
  return {quiet, port_.idle_timeout_ms(), port_.slots_are_scarce()};
}

/* Is only scheduled work left (idle_exit.h)? */
bool Loop::is_quiet() {
  if (claims_wanted_ || rescan_wanted_ || d_.in_flight.count() > 0 || waits_for_standbys() || port_.has_errors() ||
      d_.recording.in_trouble() || port_.is_busy())
    return false;
  for (const RoundSink *sink : d_.sinks.all()) {
    const SinkCondition condition = port_.condition_of(*sink);
    if (condition == SinkCondition::STOPPED)
      continue;
    if (condition != SinkCondition::HEALTHY || sink->cursor->has_backlog() || !sink->cursor->late.empty() ||
        sink->cursor->early_retry.going() || d_.blocked_keys.any_draining(sink->id()))
      return false;
  }
  return true;
}

bool Loop::exits_idle(Now now) {
  const Idleness idle = idleness(is_quiet());
  const bool is_long_enough = d_.idle_exit.idle_for_long(now.moment, idle);
  Moment until;

  if (d_.idle_exit.busy())
    port_.stays();
  if (!is_long_enough)
    return false;
  const Moment next = std::min({port_.next_of_sinks(now), d_.locked_rows.next_moment(), port_.next_of_shards()});
  const WallTime due = next_due();
  return d_.idle_exit.worth_it(now, idle, next, due, &until) && port_.exits(until, due);
}

}  // namespace dispatch
