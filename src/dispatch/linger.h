/*
 * linger.h: how long the worker waits to claim several commits' events together. Below 2,000 events/s each event is
 * claimed at once; above, those of 4 to 20 ms are claimed together, and no commit need wake the worker meanwhile.
 */
#pragma once

#include "dispatch/time.h"

namespace dispatch {

class Linger {
public:
  /* After a round that began at `began` and claimed `events`. `more`: others can be claimed at once. */
  void claimed(Moment began, int events, bool more) noexcept;

  /* Nothing need be claimed before; MOMENT_NONE = claim at once. */
  Moment until() const noexcept { return until_; }

private:
  Moment window_began_ = MOMENT_NONE, until_ = MOMENT_NONE;
  int64_t in_window_ = 0, rate_ = 0; /* events; events/s */
};

}  // namespace dispatch
