/*
 * clock.h: the two clocks. Pauses, bounds and due times inside the server are moments of the monotonic clock, which
 * all processes of one boot share and nobody sets. What stands in rows is wall time (TimestampTz). A Moment is a type
 * of its own, so that neither is taken for the other.
 */
#pragma once

#include "server.h"

#include <limits.h>
#include <time.h>

extern "C" {
#include "utils/timestamp.h"
}

/* Microseconds of CLOCK_MONOTONIC. Zeroed shared memory is MOMENT_NONE. */
typedef struct Moment {
  int64 us;
} Moment;

static const Moment MOMENT_NONE = {0};             /* long ago, or: not set */
static const Moment MOMENT_NEVER = {PG_INT64_MAX}; /* later than all others */

static inline bool operator==(Moment a, Moment b) {
  return a.us == b.us;
}

static inline bool operator!=(Moment a, Moment b) {
  return a.us != b.us;
}

static inline bool operator<(Moment a, Moment b) {
  return a.us < b.us;
}

static inline bool operator<=(Moment a, Moment b) {
  return a.us <= b.us;
}

static inline bool operator>(Moment a, Moment b) {
  return a.us > b.us;
}

static inline bool operator>=(Moment a, Moment b) {
  return a.us >= b.us;
}

static inline Moment moment_now(void) {
  struct timespec now;

  clock_gettime(CLOCK_MONOTONIC, &now);
  return {(int64)now.tv_sec * USECS_PER_SEC + now.tv_nsec / 1000};
}

static inline Moment moment_after(Moment moment, int64 milliseconds) {
  return {moment.us + milliseconds * 1000};
}

/* Rounded up, so that the moment has come after a sleep of so long; 0 when it has, LONG_MAX for MOMENT_NEVER. */
static inline long milliseconds_until(Moment now, Moment moment) {
  return moment == MOMENT_NEVER ? LONG_MAX : moment <= now ? 0 : (long)((moment.us - now.us + 999) / 1000);
}

static inline bool moment_is_past(Moment since, Moment now, int64 milliseconds) {
  return now >= moment_after(since, milliseconds);
}

/* Both clocks, read together. */
typedef struct Now {
  Moment moment;
  TimestampTz wall;
} Now;

static inline Now now_read(void) {
  return {moment_now(), GetCurrentTimestamp()};
}

/* When the wall clock will say so, unless somebody sets it: a wait for that must be bounded. */
static inline Moment moment_of_wall(Now now, TimestampTz wall) {
  if (wall == DT_NOEND)
    return MOMENT_NEVER;
  return wall <= now.wall ? now.moment : Moment{now.moment.us + (wall - now.wall)};
}

/* For people to read: what the wall clock would have said, or will say, by what it says now. */
static inline TimestampTz wall_of_moment(Now now, Moment moment) {
  return now.wall + (moment.us - now.moment.us);
}
