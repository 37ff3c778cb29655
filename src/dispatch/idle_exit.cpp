/*
 * idle_exit.cpp: an exit costs a process start later, so a worker stays if work is due within 1 s, or within the
 * time for which it must be idle before it exits.
 */
#include "dispatch/idle_exit.h"

#include <algorithm>

namespace dispatch {

static constexpr int64_t LONGEST_ABSENCE_MS = 60 * 60 * 1000;
static constexpr int64_t SHORTEST_ABSENCE_MS = 1000;

static int64_t required_idle_ms(const Idleness &idleness) {
  return idleness.slots_scarce ? 0 : idleness.timeout_ms;
}

bool IdleExit::idle_for_long(Moment now, const Idleness &idleness) noexcept {
  if (!idleness.quiet || idleness.timeout_ms == 0) {
    idle_since_ = MOMENT_NONE;
    return false;
  }
  if (busy())
    idle_since_ = now;
  return moment_is_past(idle_since_, now, required_idle_ms(idleness));
}

bool IdleExit::worth_it(Now now, const Idleness &idleness, Moment next, WallTime due, Moment *until) const noexcept {
  *until = std::min(next, moment_after(now.moment, LONGEST_ABSENCE_MS));
  return std::min(*until, moment_of_wall(now, due)) >=
         moment_after(now.moment, std::max(SHORTEST_ABSENCE_MS, required_idle_ms(idleness)));
}

Moment IdleExit::next_moment(Moment now, const Idleness &idleness) const noexcept {
  const Moment moment = moment_after(idle_since_, required_idle_ms(idleness));

  /* after that moment, every other wake-up asks again */
  return busy() || moment <= now ? MOMENT_NEVER : moment;
}

}  // namespace dispatch
