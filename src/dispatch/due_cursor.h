/*
 * due_cursor.h: how far those rows of a sink were read that have a time of their own (scheduled and failed ones), in
 * order of time and position. Nothing is read before the next of them is due.
 */
#pragma once

#include <algorithm>

#include "dispatch/time.h"

namespace dispatch {

class DueCursor {
public:
  void begin_round() noexcept {
    state_.next = std::min(state_.next, expected_);
    if (expected_ <= state_.after)
      state_.after = expected_ - 1;
    expected_ = WALL_TIME_NEVER;
    at_round_begin_ = state_;
  }
  /* A row that is expected since the round began is expected still. */
  void roll_back_round() noexcept {
    state_ = {at_round_begin_.after, at_round_begin_.after_position, std::min(state_.next, at_round_begin_.next)};
  }
  void restart() noexcept {
    state_ = BEGINNING;
    expected_ = WALL_TIME_NEVER;
  }

  /* Rows up to here were read: all of an earlier time, and those of this time up to this position. */
  WallTime after() const noexcept { return state_.after; }
  int64_t after_position() const noexcept { return state_.after_position; }
  /* No row is due earlier; WALL_TIME_NEVER = there is none. */
  WallTime next() const noexcept { return std::min(state_.next, expected_); }

  /* A row is to be found again at this time. That may lie before rows that were read: the clock was set back. It
   * counts from the next round on: the reads of this one do not see a row that this one writes. */
  void expect(WallTime due) noexcept { expected_ = std::min(expected_, due); }

  /* A read begins after after(). It tells of each row that it has passed, and ends with one of stop_before(), when it
   * stops before a row, full(), when there may be more rows, or neither. */
  void begin_read() noexcept { state_.next = WALL_TIME_NEVER; }
  void passed(WallTime due, int64_t position) noexcept {
    state_.after = due;
    state_.after_position = position;
  }
  void stop_before(WallTime due) noexcept { state_.next = due; }
  void full() noexcept { state_.next = state_.after; }

private:
  struct State {
    WallTime after;
    int64_t after_position;
    WallTime next;
  };
  static constexpr State BEGINNING = {WALL_TIME_BEGIN, 0, WALL_TIME_BEGIN};

  State state_ = BEGINNING, at_round_begin_ = BEGINNING;
  WallTime expected_ = WALL_TIME_NEVER; /* the earliest row since the round began */
};

}  // namespace dispatch
