/*
 * main_scan.cpp: a sink that has no room for a row leaves the read, and its cursor stays at the last row that it
 * claimed: to read past a row would send a later event of its key before it.
 */
#include "dispatch/main_scan.h"

namespace dispatch {

void MainScan::begin_round() noexcept {
  from_ = 0;
  more_ = false;
}

bool MainScan::begin_read(const Round &round, MainRead *read) noexcept {
  const bool has_room = round.free_events > 0 && round.free_bytes > 0;
  int64_t lowest = POSITION_NONE, above = POSITION_NONE;
  int free_places = 0;

  for (const RoundSink *sink : sinks_.all()) {
    SinkCursor *cursor = sink->cursor;
    if (cursor->position() < from_)
      continue;
    if (!has_room || cursor->free_places() <= 0) /* rows may wait, and no later commit tells of them */
      cursor->set_has_backlog(true);
    else if (cursor->may_read())
      lowest = std::min(lowest, cursor->position());
  }
  if (lowest == POSITION_NONE)
    return false;
  n_reading_ = 0;
  for (const RoundSink *sink : sinks_.all()) {
    SinkCursor *cursor = sink->cursor;
    if (!cursor->may_read() || cursor->position() < lowest)
      continue;
    if (cursor->position() > lowest) {
      above = std::min(above, cursor->position());
      continue;
    }
    cursor->begin_read();
    n_reading_++;
    free_places += cursor->free_places();
  }
  /* A sink that leaves this read may stand at a position of its own then: the next round reads on from there. */
  from_ = above;
  n_rows_ = 0;
  last_position_ = lowest;
  limit_ = std::clamp(std::min(free_places, round.free_events) * 2, READ_MIN, READ_MAX);
  *read = {lowest, limit_};
  return true;
}

void MainScan::stop_before(int64_t position, SinkCursor *cursor) noexcept {
  if (cursor) {
    cursor->end_read(true);
    n_reading_--;
    return;
  }
  /* The event is to be routed first: the sinks that take it read up to it. */
  for (const RoundSink *sink : sinks_.all())
    if (sink->cursor->reading() && sink->cursor->unrouted_at() == position) {
      sink->cursor->passed(position - 1);
      sink->cursor->end_read(false);
      n_reading_--;
    }
}

void MainScan::end_read() noexcept {
  const bool full = n_rows_ == limit_;

  for (const RoundSink *sink : sinks_.all())
    if (sink->cursor->reading()) {
      sink->cursor->passed(last_position_);
      sink->cursor->end_read(full);
    }
  more_ |= full;
}

}  // namespace dispatch
