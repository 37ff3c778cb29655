/*
 * clock.h: reads the two clocks. Pauses, bounds and due times inside the server are moments of the monotonic clock,
 * which all processes of one boot share and which cannot be set. Rows hold wall time (TimestampTz). With one clock
 * for both, setting the clock back by a minute stopped delivery under load for that minute. A wait for a time in a
 * row is bounded, by 5 s in a worker and 10 s in the launcher, because the clock may be set meanwhile.
 */
#pragma once

#include "server/base/server.h"

#include <time.h>

#include "dispatch/time.h"

extern "C" {
#include "utils/timestamp.h"
}

using dispatch::milliseconds_until;
using dispatch::Moment;
using dispatch::moment_after;
using dispatch::moment_is_past;
using dispatch::MOMENT_NEVER;
using dispatch::MOMENT_NONE;
using dispatch::moment_of_wall;
using dispatch::Now;
using dispatch::wall_of_moment;

static_assert(DT_NOEND == dispatch::WALL_TIME_NEVER && DT_NOBEGIN == dispatch::WALL_TIME_BEGIN);

static inline Moment moment_now(void) {
  struct timespec now;

  clock_gettime(CLOCK_MONOTONIC, &now);
  return {(int64)now.tv_sec * USECS_PER_SEC + now.tv_nsec / 1000};
}

static inline Now now_read(void) {
  return {moment_now(), GetCurrentTimestamp()};
}
