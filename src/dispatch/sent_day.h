/*
 * sent_day.h: whether delivered events that are to be kept can be kept. They move to a partition of the day. Without
 * one nothing could be recorded at all, so then they are deleted instead; but the partition may be about to be made,
 * after a long time without a worker or because a user has dropped it, so they wait for it for 10 s.
 */
#pragma once

#include <climits>

#include "dispatch/recording.h"
#include "dispatch/time.h"

namespace dispatch {

class SentDay {
public:
  /* A transaction begins: a user may have detached or dropped the partition since the last one. */
  void begin() noexcept { looked_at_ = INT_MIN; }

  /* Was the partition of this day looked for in this transaction? Days are numbered by the caller. */
  bool was_looked_for(int day) const noexcept { return day == looked_at_; }
  Retention answer() const noexcept { return answer_; }

  /* The partition of this day was looked for. Returns the answer. */
  Retention look(int day, bool exists, Moment now) noexcept;

  /* A partition is missing and should be made. Told once each time that one is missed. */
  bool take_missing() noexcept;

  /* Delivered events are deleted although they should be kept. True once an hour: then a user should know. */
  bool warn(Moment now) noexcept;

private:
  int looked_at_ = INT_MIN, missing_day_ = INT_MIN;
  Retention answer_ = Retention::NONE;
  bool missing_ = false;
  Moment missing_since_ = MOMENT_NONE, warned_at_ = MOMENT_NONE;
};

}  // namespace dispatch
