/*
 * sent_day.h: whether delivered events that are to be kept can be kept. They move to a partition of the day. Without
 * one nothing could be recorded at all, so then they are deleted instead; but the partition may be about to be made,
 * after a long time without a worker, so they wait for it for 10 s.
 */
#pragma once

#include <climits>

#include "dispatch/recording.h"
#include "dispatch/time.h"

namespace dispatch {

class SentDay {
public:
  /* The partition of this day was found before. Days are numbered by the caller. */
  bool is_ready(int day) const noexcept { return day == ready_day_; }

  /* The partition of this day was looked for. */
  Retention look(int day, bool exists, Moment now) noexcept;

  /* A partition is missing and should be made. Told once for each day. */
  bool take_missing() noexcept;

  /* Delivered events are deleted although they should be kept. True once an hour: then a user should know. */
  bool warn(Moment now) noexcept;

private:
  int ready_day_ = INT_MIN, missing_day_ = INT_MIN;
  bool missing_ = false;
  Moment missing_since_ = MOMENT_NONE, warned_at_ = MOMENT_NONE;
};

}  // namespace dispatch
