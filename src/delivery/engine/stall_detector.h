/*
 * stall_detector.h: tells when a peer that is connected has acknowledged nothing for too long although it has work. A
 * pure class: time comes in as a parameter. One thread.
 */
#pragma once

#include <chrono>
#include <cstddef>

namespace outbox {

class StallDetector {
public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds patience{30};

  /* Before an event is handed over, with the number of those under way. */
  void on_submit(size_t under_way, Time now) {
    if (under_way == 0)
      progress_at_ = now;
  }
  void on_acknowledgement(Time now) { progress_at_ = now; }
  Time stalled_at() const { return progress_at_ + patience; }
  bool is_stalled(size_t under_way, Time now) const { return under_way > 0 && now - progress_at_ >= patience; }

private:
  Time progress_at_{};
};

}  // namespace outbox
