/*
 * sink_share.h: how many more events each sink may have in flight. Each has its share of outbox.max_in_flight, so
 * that one that hangs does not stop the others. Events that have ended and are not recorded do not count in it, or
 * recording would slow a busy sink down; but a quarter of each share is kept for its sink, so that one whose events
 * cannot be recorded does not take all places. Of a sink whose recording is stuck one event at a time is sent, as it
 * may be only the earlier ones that cannot be recorded.
 */
#pragma once

#include <algorithm>

#include "dispatch/recording.h"
#include "dispatch/round_sink.h"

namespace dispatch {

class SinkShares {
public:
  SinkShares(int max_in_flight, int n_sinks) noexcept
      : share_(std::max(1, max_in_flight / std::max(1, n_sinks))), kept_(std::max(1, share_ / 4)),
        free_(max_in_flight) {}

  /* For each sink, before any may_claim(). */
  void add(const RoundSink &sink) noexcept { free_ -= std::max(sink.in_flight + sink.unrecorded, kept_); }

  /* At most once for each sink, those with a backlog first. May be negative. */
  int may_claim(const RoundSink &sink) noexcept {
    const int most = share_ - sink.in_flight - sink.left;
    const bool is_tried = sink.in_flight > 0 || sink.unrecorded > sink.left_alone;
    const int allowed = std::min(sink.credit, !Recording::is_stuck(&sink.events) ? most
                                              : is_tried                         ? 0
                                                                                 : std::min(most, 1));
    const int own = std::max(0, kept_ - sink.in_flight - sink.unrecorded);
    const int more = std::clamp(allowed - own, 0, std::max(0, free_));
    free_ -= more;
    exhausted_ = exhausted_ || (allowed > 0 && own + more <= 0);
    return std::min(allowed, own + more);
  }

  /* A sink may claim none because others hold the places. It may when some of their events are recorded. */
  bool exhausted() const noexcept { return exhausted_; }

private:
  int share_, kept_;
  int free_; /* what no sink holds, and is kept for none */
  bool exhausted_ = false;
};

}  // namespace dispatch
