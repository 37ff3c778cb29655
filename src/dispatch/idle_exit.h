/*
 * idle_exit.h: decides whether an idle worker exits. A worker exits when it has been idle for
 * outbox.worker_idle_timeout, or at once while other databases wait for a free slot. So a database with nothing due
 * occupies no slot. The launcher starts a worker again after a commit with events, when the next event is due, and
 * at least once an hour, for maintenance and as a safety net.
 */
#pragma once

#include "dispatch/time.h"

namespace dispatch {

/* The facts for the decision. */
struct Idleness {
  bool quiet;         /* the only work left has a due time of its own */
  int64_t timeout_ms; /* 0 = workers never leave */
  bool slots_scarce;  /* other databases wait for a free slot */
};

class IdleExit {
public:
  /* Call it after each loop. True when the worker has been idle for the required time. */
  bool idle_for_long(Moment now, const Idleness &idleness) noexcept;
  bool busy() const noexcept { return idle_since_ == MOMENT_NONE; }

  /* Whether exiting pays: this worker has nothing to do before `next`, and no event is due before `due`. `*until` is
   * when the launcher must start a worker again if nothing asks for one earlier. */
  bool worth_it(Now now, const Idleness &idleness, Moment next, WallTime due, Moment *until) const noexcept;

  /* When to call again if nothing happens; MOMENT_NEVER = no timer is needed. */
  Moment next_moment(Moment now, const Idleness &idleness) const noexcept;

private:
  Moment idle_since_ = MOMENT_NONE;
};

}  // namespace dispatch
