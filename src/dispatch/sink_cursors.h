/* sink_cursors.h: the cursors of all sinks that a worker knows, open or not. */
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "dispatch/sink_cursor.h"

namespace dispatch {

class SinkCursors {
public:
  /* A cursor that stands at the beginning, and is valid until it is removed. NULL: out of memory. */
  SinkCursor *add() noexcept;
  void remove(const SinkCursor *cursor) noexcept;

  void begin_round() noexcept;
  void roll_back_round() noexcept;

  std::span<const std::unique_ptr<SinkCursor>> all() const noexcept { return cursors_; }

private:
  std::vector<std::unique_ptr<SinkCursor>> cursors_;
};

}  // namespace dispatch
