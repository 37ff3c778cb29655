/*
 * time.h: the two kinds of time of the decisions, which are always arguments. Pauses, bounds and waits are moments of
 * a monotonic clock; what stands in rows is wall time. A Moment is a type of its own, so that neither is taken for
 * the other.
 */
#pragma once

#include <climits>
#include <compare>
#include <cstdint>

namespace dispatch {

/* Microseconds of a monotonic clock. Zeroed memory is MOMENT_NONE. */
struct Moment {
  int64_t us;
  auto operator<=>(const Moment &) const = default;
};

inline constexpr Moment MOMENT_NONE = {0};          /* long ago, or: not set */
inline constexpr Moment MOMENT_NEVER = {INT64_MAX}; /* later than all others */

/* Microseconds since an epoch that is the caller's. */
using WallTime = int64_t;
inline constexpr WallTime WALL_TIME_NEVER = INT64_MAX; /* later than all others */
inline constexpr WallTime WALL_TIME_BEGIN = INT64_MIN; /* earlier than all others */

/* Both clocks, read together. */
struct Now {
  Moment moment;
  WallTime wall;
};

inline constexpr Moment moment_after(Moment moment, int64_t milliseconds) {
  return {moment.us + milliseconds * 1000};
}

/* Rounded up, so that the moment has come after a sleep of so long; 0 when it has, LONG_MAX for MOMENT_NEVER. */
inline constexpr long milliseconds_until(Moment now, Moment moment) {
  return moment == MOMENT_NEVER ? LONG_MAX : moment <= now ? 0 : static_cast<long>((moment.us - now.us + 999) / 1000);
}

inline constexpr bool moment_is_past(Moment since, Moment now, int64_t milliseconds) {
  return now >= moment_after(since, milliseconds);
}

/* When the wall clock will say so, unless somebody sets it: a wait for that must be bounded. */
inline constexpr Moment moment_of_wall(Now now, WallTime wall) {
  if (wall == WALL_TIME_NEVER)
    return MOMENT_NEVER;
  return wall <= now.wall ? now.moment : Moment{now.moment.us + (wall - now.wall)};
}

/* For users to read: what the wall clock would have said, or will say, by what it says now. */
inline constexpr WallTime wall_of_moment(Now now, Moment moment) {
  return now.wall + (moment.us - now.moment.us);
}

}  // namespace dispatch
