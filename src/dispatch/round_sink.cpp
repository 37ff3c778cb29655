/*
 * round_sink.cpp: few events look their sink up by its id, so the sinks are a list. A cursor is an object of its own,
 * since the server zeroes the memory of a sink.
 */
#include "dispatch/round_sink.h"

namespace dispatch {

void RoundSinks::add(RoundSink *sink) noexcept {
  cursors_.emplace_back(checked(new (std::nothrow) SinkCursor));
  sinks_.push_back(sink);
  sink->cursor = cursors_.back().get();
}

void RoundSinks::remove(RoundSink *sink) noexcept {
  const auto place = std::find(sinks_.begin(), sinks_.end(), sink);

  cursors_.erase(cursors_.begin() + (place - sinks_.begin()));
  sinks_.erase(place);
  last_found_ = nullptr;
  sink->cursor = nullptr;
}

void RoundSinks::begin_round() noexcept {
  for (const auto &cursor : cursors_)
    cursor->begin_round();
}

void RoundSinks::roll_back_round() noexcept {
  for (const auto &cursor : cursors_)
    cursor->roll_back_round();
}

RoundSink *RoundSinks::find(SinkId id) const noexcept {
  if (id == 0)
    return nullptr;
  if (last_found_ && last_found_->id() == id)
    return last_found_;
  const auto found =
      std::find_if(sinks_.begin(), sinks_.end(), [id](const RoundSink *sink) { return sink->id() == id; });

  return found == sinks_.end() ? nullptr : last_found_ = *found;
}

bool RoundSinks::any_fresh_shard() const noexcept {
  return std::any_of(sinks_.begin(), sinks_.end(), [](const RoundSink *sink) { return sink->shards.any_fresh(); });
}

bool RoundSinks::troubled_known() const noexcept {
  return std::all_of(sinks_.begin(), sinks_.end(),
                     [](const RoundSink *sink) { return sink->cursor->troubled.all_known(); });
}

bool RoundSinks::any_starved() const noexcept {
  return std::any_of(sinks_.begin(), sinks_.end(),
                     [](const RoundSink *sink) { return !sink->stopped && sink->cursor->has_backlog(); });
}

}  // namespace dispatch
