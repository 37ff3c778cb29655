/*
 * early_retry.cpp: the text of the last error, which stands in the row, tells which events wait for a reason.
 * For an outage the time of the last try tells it: events that spent an attempt before the outage was known to
 * be one have errors of all kinds.
 */
#include "dispatch/early_retry.h"

#include <algorithm>
#include <cstring>

namespace dispatch {

/* The failure of an event and that of its sink are timed apart: by at most this much. */
static constexpr int64_t SLACK_MS = 1000;

/* How the errors of all topics begin. */
static constexpr char ANY_TOPIC[] = "topic \"";

void EarlyRetry::roll_back_round() noexcept {
  pass_ = {pass_.going || at_round_begin_.going, at_round_begin_.after, at_round_begin_.after_position};
}

void EarlyRetry::begin(const char *reason, WallTime now) noexcept {
  const size_t length = std::min(std::strlen(reason), REASON_MAX - 1);

  std::memcpy(reason_, reason, length);
  reason_[length] = '\0';
  tried_since_ = 0;
  since_ = now;
  pass_ = {true, now, 0};
}

void EarlyRetry::begin_all(WallTime now) noexcept {
  begin(ANY_TOPIC, now);
}

void EarlyRetry::outage(int64_t outage_ms, WallTime now) noexcept {
  if (outage_ms >= 0) {
    if (outage_since_ == 0)
      outage_since_ = now - (outage_ms + SLACK_MS) * 1000;
  } else if (outage_since_ != 0 && !going()) {
    begin("", now);
    tried_since_ = outage_since_;
    outage_since_ = 0;
  }
}

void EarlyRetry::pause(int64_t paused_ms, bool all_recorded, WallTime now) noexcept {
  if (pause_ended_ && all_recorded && !going()) {
    begin("", now);
    tried_since_ = pause_since_;
    pause_ended_ = false;
    pause_since_ = 0;
  } else if (paused_ms > 0 && pause_since_ == 0) {
    pause_since_ = now - SLACK_MS * 1000;
  } else if (paused_ms <= 0 && !pause_ended_) {
    pause_since_ = 0; /* what waited for its end is due by now */
  }
}

bool EarlyRetry::frees(const WaitingRow &row, WallTime now) const noexcept {
  if (row.tried_at == WALL_TIME_NEVER || row.available_at <= now)
    return false; /* it is merely scheduled; or it is due anyway */
  if (row.error.data() == nullptr)
    return false;
  if (row.tried_at > since_ && row.tried_at <= now) /* a later time than now is older: the clock was set back */
    return false;
  return tried_since_ != 0 ? row.tried_at >= tried_since_ : row.error.starts_with(reason_);
}

void EarlyRetry::returned() noexcept {
  pass_ = {true, since_, 0};
}

}  // namespace dispatch
