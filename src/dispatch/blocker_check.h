/*
 * blocker_check.h: when to look whether the blockers of keys still stand in the table. Nobody tells the worker
 * when a blocker is deleted in flight, given to another worker or truncated. Its key must then go on.
 */
#pragma once

#include "dispatch/blocked_keys.h"
#include "dispatch/time.h"

namespace dispatch {

class BlockerCheck {
public:
  /* True when a rescan should check the next blockers. A rescan follows each change by a user. So when there are more
   * blockers than one check takes, checks are `pause_ms` apart, unless the last one found that blockers had left. */
  bool wanted(const BlockedKeys &keys, Moment now, int64_t pause_ms) const noexcept {
    return keys.checked_at_once() || found_some_ || moment_is_past(checked_at_, now, pause_ms);
  }
  void begin(Moment now) noexcept { checked_at_ = now; }
  /* True when the next check should follow at once: blockers have left, and more may have. */
  bool end(const BlockedKeys &keys, bool some_had_left) noexcept {
    found_some_ = some_had_left;
    return some_had_left && !keys.checked_at_once();
  }

private:
  Moment checked_at_ = MOMENT_NONE;
  bool found_some_ = false;
};

}  // namespace dispatch
