/*
 * sink_cursor.cpp: when a cursor goes back to one row, it meets again all rows that were claimed since. They are in
 * flight, and are skipped. A rollback takes back what was passed, and keeps what is yet to be done: a place
 * to which the cursor must go back, the time of a row that is due, a pass that has begun.
 */
#include "dispatch/sink_cursor.h"

namespace dispatch {

void SinkCursor::begin_round() noexcept {
  at_round_begin_ = position_;
  was_at_start_ = at_start_;
  unrouted_at_ = 0; /* a read of this round finds the event again, unless it was routed */
  due.begin_round();
  early_retry.begin_round();
  late.begin_round();
  troubled.begin_round();
}

void SinkCursor::roll_back_round() noexcept {
  position_ = std::min(position_, at_round_begin_);
  lower_watermark(position_ + 1);
  reading_ = false;
  has_backlog_ = true;
  at_start_ = was_at_start_;
  due.roll_back_round();
  early_retry.roll_back_round();
  late.roll_back_round();
  troubled.roll_back_round();
}

void SinkCursor::restart(WallTime now) noexcept {
  position_ = at_round_begin_ = rewound_to_ = 0;
  first_foreign_ = POSITION_NONE;
  lower_watermark(0);
  has_backlog_ = true;
  at_start_ = true;
  due.restart();
  early_retry.begin_all(now);
  late.clear();
}

void SinkCursor::start_after(int64_t position) noexcept {
  at_start_ = false;
  position_ = std::max(position_, position);
}

void SinkCursor::rewind(int64_t position) noexcept {
  at_start_ = was_at_start_ = false; /* a returned event may be marked and have a time */
  position_ = std::min(position_, position - 1);
  at_round_begin_ = std::min(at_round_begin_, position_);
  rewound_to_ = std::min(rewound_to_, position - 1);
  lower_watermark(position);
  has_backlog_ = true;
}

void SinkCursor::begin_read() noexcept {
  reading_ = true;
  has_backlog_ = false;
}

void SinkCursor::end_read(bool has_backlog) noexcept {
  reading_ = false;
  has_backlog_ = has_backlog;
}

void SinkCursor::routing_over(int64_t position) noexcept {
  if (unrouted_at_ == position)
    unrouted_at_ = 0;
}

void SinkCursor::late_commit(uint64_t xid, int64_t first_row) noexcept {
  if (first_row > position_)
    return; /* the main scan comes to all its rows */
  lower_watermark(0);
  late.add(xid, position_);
}

void SinkCursor::raise_watermark(int64_t lowest_blocked) noexcept {
  low_watermark_ = std::min({position_ + 1, lowest_blocked, late.lowest(), first_foreign_});
}

void SinkCursor::foreign_row_passed(int64_t position) noexcept {
  if (position >= first_foreign_)
    return;
  first_foreign_ = position;
  lower_watermark(position);
}

}  // namespace dispatch
