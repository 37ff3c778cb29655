/* sink_cursors.cpp: a cursor is an object of its own, so that the server may keep a pointer to it with its sink. */
#include "dispatch/sink_cursors.h"

namespace dispatch {

SinkCursor *SinkCursors::add() noexcept {
  try {
    return cursors_.emplace_back(std::make_unique<SinkCursor>()).get();
  } catch (...) {
    return nullptr;
  }
}

void SinkCursors::remove(const SinkCursor *cursor) noexcept {
  std::erase_if(cursors_, [cursor](const auto &one) { return one.get() == cursor; });
}

void SinkCursors::begin_round() noexcept {
  for (const auto &cursor : cursors_)
    cursor->begin_round();
}

void SinkCursors::roll_back_round() noexcept {
  for (const auto &cursor : cursors_)
    cursor->roll_back_round();
}

}  // namespace dispatch
