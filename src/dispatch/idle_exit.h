/*
 * idle_exit.h: whether an idle worker leaves. A database with nothing due holds no worker: one that has been idle for
 * outbox.worker_idle_timeout, or at all while other databases wait for a free slot, leaves. The launcher starts one
 * again when something is committed, when the next event is due, and once an hour to be safe and to tidy up.
 */
#pragma once

#include "dispatch/time.h"

namespace dispatch {

/* What the decision goes by. */
struct Idleness {
  bool quiet;         /* only what has its own time is left to do */
  int64_t timeout_ms; /* 0 = workers never leave */
  bool slots_scarce;  /* other databases wait for a free slot */
};

class IdleExit {
public:
  /* After each loop. True when the worker has been idle for long enough: should it leave? */
  bool idle_for_long(Moment now, const Idleness &idleness) noexcept;
  bool busy() const noexcept { return idle_since_ == MOMENT_NONE; }

  /* This worker has nothing to do before `next`, and no event is due before `due`: is it worth leaving? `*until` is
   * when a worker is needed again if nobody calls for one before. */
  bool worth_it(Now now, const Idleness &idleness, Moment next, WallTime due, Moment *until) const noexcept;

  /* When to ask again, if nothing happens; MOMENT_NEVER = not by itself. */
  Moment next_moment(Moment now, const Idleness &idleness) const noexcept;

private:
  Moment idle_since_ = MOMENT_NONE;
};

}  // namespace dispatch
