/*
 * stall_detector.h: detects that a connected peer has events in flight and has acknowledged none of them for 30 s.
 * A large event on a slow link takes longer than that, so bytes that leave a full socket are progress, too. Others
 * are not: the peer's machine takes them although the peer hangs. Time is a parameter; used by one thread.
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
    if (in_flight > 0)
      return;
    progress_at_ = now;
    full_ = false;
    queued_ = 0;
  }
  /* Call it after bytes were given to the socket; if it is full now, with the number of bytes that are in it, else
   * with 0. Returns whether the socket was full and has taken some, which is progress. */
  bool on_flush(bool any_taken, size_t queued, Time now) {
    const bool progress = full_ && any_taken;
    if (progress)
      progress_at_ = now;
    full_ = queued > 0;
    if (full_)
      queued_ = queued;
    return progress;
  }
  void on_acknowledgement(Time now) { progress_at_ = now; }
  void on_reconnection(Time now) { progress_at_ = now; }
  Time stalled_at() const { return progress_at_ + stall_after; }
  bool is_stalled(size_t in_flight, Time now) const { return in_flight > 0 && now - progress_at_ >= stall_after; }
  /* Call it when the peer seems to be stalled, with the number of bytes in the socket: true, and progress, if the
   * socket was full, and has fewer of them than then and at the last call. */
  bool drains(size_t queued, Time now) {
    if (queued >= queued_)
      return false;
    queued_ = queued;
    progress_at_ = now;
    return true;
  }

private:
  Time progress_at_{};
  bool full_ = false; /* the socket */
  size_t queued_ = 0; /* bytes in it when it was full, or at the last drains() */
};

}  // namespace outbox
