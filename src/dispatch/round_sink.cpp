/* round_sink.cpp: few events look their sink up by its id, so the sinks are a list. */
#include "dispatch/round_sink.h"

namespace dispatch {

bool RoundSinks::add(RoundSink *sink) noexcept {
  try {
    sinks_.push_back(sink);
  } catch (...) {
    return false;
  }
  return true;
}

void RoundSinks::remove(const RoundSink *sink) noexcept {
  std::erase(sinks_, sink);
}

RoundSink *RoundSinks::find(SinkId id) const noexcept {
  if (id == 0)
    return nullptr;
  const auto found =
      std::find_if(sinks_.begin(), sinks_.end(), [id](const RoundSink *sink) { return sink->id() == id; });

  return found == sinks_.end() ? nullptr : *found;
}

bool RoundSinks::any_fresh_shard() const noexcept {
  return std::any_of(sinks_.begin(), sinks_.end(), [](const RoundSink *sink) { return sink->shards.any_fresh(); });
}

bool RoundSinks::any_starved() const noexcept {
  return std::any_of(sinks_.begin(), sinks_.end(),
                     [](const RoundSink *sink) { return !sink->stopped && sink->cursor->has_backlog(); });
}

}  // namespace dispatch
