/*
 * idle_exit.cpp: leaving costs a start later, so a worker does not leave when something is due within a second, or
 * within the time for which it must be idle.
 */
#include "dispatch/idle_exit.h"

#include <algorithm>

namespace dispatch {

static constexpr int64_t LONGEST_ABSENCE_MS = 60 * 60 * 1000;
static constexpr int64_t SHORTEST_ABSENCE_MS = 1000;

static int64_t patience_ms(const Idleness &idleness) {
  return idleness.slots_scarce ? 0 : idleness.timeout_ms;
}

bool IdleExit::idle_for_long(Moment now, const Idleness &idleness) noexcept {
  if (!idleness.quiet || idleness.timeout_ms == 0) {
    idle_since_ = MOMENT_NONE;
    return false;
  }
  if (busy())
    idle_since_ = now;
  return moment_is_past(idle_since_, now, patience_ms(idleness));
}

bool IdleExit::worth_it(Now now, const Idleness &idleness, Moment next, WallTime due, Moment *until) const noexcept {
  *until = std::min(next, moment_after(now.moment, LONGEST_ABSENCE_MS));
  return std::min(*until, moment_of_wall(now, due)) >=
         moment_after(now.moment, std::max(SHORTEST_ABSENCE_MS, patience_ms(idleness)));
}

Moment IdleExit::next_moment(Moment now, const Idleness &idleness) const noexcept {
  const Moment moment = moment_after(idle_since_, patience_ms(idleness));

  /* Once that has come, whatever else wakes the worker asks again. */
  return busy() || moment <= now ? MOMENT_NEVER : moment;
}

}  // namespace dispatch
