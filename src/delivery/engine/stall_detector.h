/*
 * stall_detector.h: detects that a connected peer has events in flight and has acknowledged none of them for 30 s.
 * Time is a parameter; used by one thread.
 */
#pragma once

#include <chrono>
#include <cstddef>

namespace outbox {

class StallDetector {
public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds stall_after{30};

  /* Call it before an event is sent, with the number of events in flight. */
  void on_submit(size_t in_flight, Time now) {
    if (in_flight == 0)
      progress_at_ = now;
  }
  void on_acknowledgement(Time now) { progress_at_ = now; }
  void on_reconnection(Time now) { progress_at_ = now; }
  Time stalled_at() const { return progress_at_ + stall_after; }
  bool is_stalled(size_t in_flight, Time now) const { return in_flight > 0 && now - progress_at_ >= stall_after; }

private:
  Time progress_at_{};
};

}  // namespace outbox
