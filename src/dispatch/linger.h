/*
 * linger.h: how long the worker waits so that it claims many events together. Below 2,000 events/s each event is
 * claimed at once. Above, the events of 4 to 20 ms are claimed together, and commits need not wake the worker in that
 * time. And after a round that took long, because there are very many sinks, no other follows for as long, unless a
 * quarter of the events that the sinks had then have ended.
 */
#pragma once

#include <algorithm>

#include "dispatch/time.h"

namespace dispatch {

class Linger {
public:
  /* Call it after a round that claimed `events`, and after which the sinks had `running` events. `more`: further
   * events can be claimed at once. */
  void claimed(Moment began, Moment ended, int events, int running, bool more) noexcept;

  /* The next claim may wait until then, as the sinks have `running` events now; MOMENT_NONE = claim at once. */
  Moment until(int running) const noexcept {
    return running > running_enough_ ? std::max(until_, rest_until_) : until_;
  }

private:
  Moment window_began_ = MOMENT_NONE, until_ = MOMENT_NONE;
  Moment rest_until_ = MOMENT_NONE;
  int running_enough_ = 0;           /* until rest_until_ */
  int64_t in_window_ = 0, rate_ = 0; /* in events; in events/s */
};

}  // namespace dispatch
