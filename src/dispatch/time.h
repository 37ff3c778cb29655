/*
 * time.h: the two kinds of time, which are always arguments. Pauses, limits and waits are moments of a monotonic
 * clock; rows contain wall time. Moment is a struct, so that the compiler tells the two apart.
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

inline constexpr Moment MOMENT_NONE = {0};          /* long ago, or not set */
inline constexpr Moment MOMENT_NEVER = {INT64_MAX}; /* later than all others */

/* Microseconds since the caller's epoch. */
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

/* Rounded up, so that the moment has passed after a sleep of this length. 0 for a past moment, LONG_MAX for
 * MOMENT_NEVER. */
inline constexpr long milliseconds_until(Moment now, Moment moment) {
  return moment == MOMENT_NEVER ? LONG_MAX : moment <= now ? 0 : static_cast<long>((moment.us - now.us + 999) / 1000);
}

inline constexpr bool moment_is_past(Moment since, Moment now, int64_t milliseconds) {
  return now >= moment_after(since, milliseconds);
}

/* The moment at which the wall clock will show `wall`, unless the clock is set: limit a wait for it. */
inline constexpr Moment moment_of_wall(Now now, WallTime wall) {
  if (wall == WALL_TIME_NEVER)
    return MOMENT_NEVER;
  return wall <= now.wall ? now.moment : Moment{now.moment.us + (wall - now.wall)};
}

/* For display: the wall time of a moment, computed from the clocks' present difference. */
inline constexpr WallTime wall_of_moment(Now now, Moment moment) {
  return now.wall + (moment.us - now.moment.us);
}

}  // namespace dispatch
