/* sent_day.cpp: counts the waits for a partition, and the pauses between warnings. */
#include "dispatch/sent_day.h"

#include <utility>

namespace dispatch {

static constexpr int64_t GRACE_MS = 10 * 1000;
static constexpr int64_t WARNING_PAUSE_MS = 3600 * 1000;

Retention SentDay::look(int day, bool exists, Moment now) noexcept {
  looked_at_ = day;
  if (exists) {
    missing_day_ = INT_MIN;
    return answer_ = Retention::KEPT;
  }
  if (missing_day_ != day) {
    missing_day_ = day;
    missing_since_ = now;
    missing_ = true;
  }
  return answer_ = moment_is_past(missing_since_, now, GRACE_MS) ? Retention::NONE : Retention::UNDECIDED;
}

bool SentDay::take_missing() noexcept {
  return std::exchange(missing_, false);
}

bool SentDay::warn(Moment now) noexcept {
  if (warned_at_ != MOMENT_NONE && !moment_is_past(warned_at_, now, WARNING_PAUSE_MS))
    return false;
  warned_at_ = now;
  return true;
}

}  // namespace dispatch
