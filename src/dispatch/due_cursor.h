/* due_cursor.h: how far the rows of a sink that have a time of their own (scheduled and failed ones) were claimed. */
#pragma once

#include <algorithm>

#include "dispatch/time.h"

namespace dispatch {

struct DueCursor {
  WallTime after;         /* rows up to here were claimed, … */
  int64_t after_position; /* … of that instant up to this position */
  WallTime next;          /* nothing is due earlier */

  /* A row is to be found again at this time. It may lie before `after`: the clock was set back. */
  void expect(WallTime due) noexcept {
    next = std::min(next, due);
    if (due <= after)
      after = due - 1;
  }
};

}  // namespace dispatch
