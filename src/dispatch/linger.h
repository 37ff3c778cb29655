/*
 * linger.h: how long the worker waits so that it claims the events of several commits together. Below 2,000
 * events/s each event is claimed at once. Above, the events of 4 to 20 ms are claimed together, and commits need
 * not wake the worker in that time.
 */
#pragma once

#include "dispatch/time.h"

namespace dispatch {

class Linger {
public:
  /* Call it after a round that began at `began` and claimed `events`. `more`: further events can be claimed at once.
   */
  void claimed(Moment began, int events, bool more) noexcept;

  /* The next claim may wait until then; MOMENT_NONE = claim at once. */
  Moment until() const noexcept { return until_; }

private:
  Moment window_began_ = MOMENT_NONE, until_ = MOMENT_NONE;
  int64_t in_window_ = 0, rate_ = 0; /* in events; in events/s */
};

}  // namespace dispatch
