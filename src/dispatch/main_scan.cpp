/*
 * main_scan.cpp: a sink that has no room for a row leaves the read, and its cursor stays at the last row that it
 * claimed: to read past a row would send a later event of its key before it.
 */
#include "dispatch/main_scan.h"

#include <algorithm>

namespace dispatch {

void MainScan::begin_round() noexcept {
  from_ = 0;
  more_ = false;
}

bool MainScan::begin_read(const Round &round, MainRead *read) noexcept {
  const bool has_room = round.free_events > 0 && round.free_bytes > 0;
  int free_places = 0;

  starts_.clear();
  for (const RoundSink *sink : sinks_.all()) {
    SinkCursor *cursor = sink->cursor;
    if (cursor->position() < from_)
      continue;
    if (!has_room || cursor->free_places() <= 0) { /* rows may wait, and no later commit tells of them */
      cursor->set_has_backlog(true);
    } else if (cursor->may_read()) {
      cursor->begin_read();
      starts_.push_back(cursor->position());
      free_places += cursor->free_places();
    }
  }
  if (starts_.empty())
    return false;
  std::sort(starts_.begin(), starts_.end());
  n_joined_ = n_left_ = 0;
  n_for_nobody_ = n_rows_ = 0;
  ended_early_ = false;
  last_position_ = starts_.front();
  limit_ = std::clamp(std::min(free_places, round.free_events) * 2, least_, most_);
  *read = {last_position_, limit_};
  return true;
}

void MainScan::leave(SinkCursor *cursor, bool has_backlog) noexcept {
  cursor->end_read(has_backlog);
  n_left_++;
}

void MainScan::stop_before(int64_t position, SinkCursor *cursor) noexcept {
  if (cursor) {
    leave(cursor, true);
    return;
  }
  /* The event is to be routed first: the sinks that take it read up to it. */
  for (const RoundSink *sink : sinks_.all())
    if (sink->cursor->reading() && sink->cursor->unrouted_at() == position && sink->cursor->position() < position) {
      sink->cursor->passed(position - 1);
      leave(sink->cursor, false);
    }
}

/* A sink that leaves a read may stand where another begins: the next round reads on from there. */
void MainScan::end_read() noexcept {
  const bool full = n_rows_ == limit_;
  const bool all_reached = n_joined_ == starts_.size() || !(full || ended_early_);

  for (const RoundSink *sink : sinks_.all())
    if (sink->cursor->reading()) {
      sink->cursor->passed(std::max(sink->cursor->position(), last_position_));
      sink->cursor->end_read(full || ended_early_);
    }
  from_ = all_reached ? POSITION_NONE : full ? last_position_ + 1 : last_position_;
  more_ |= full;
}

}  // namespace dispatch
