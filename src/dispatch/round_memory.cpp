/* round_memory.cpp: room is made before the lists are filled, so that nothing that adds to them can fail. */
#include "dispatch/round_memory.h"

namespace dispatch {

bool RoundMemory::reserve_rows(size_t n) noexcept {
  try {
    rows.reserve(n);
    by_position.reserve(n);
    positions.reserve(n);
    dead_letters.reserve(n);
    entries.reserve(QUEUE_ENTRIES);
    done.reserve(QUEUE_ENTRIES);
  } catch (...) {
    return false;
  }
  return true;
}

bool RoundMemory::reserve_marks(size_t n) noexcept {
  try {
    marks.reserve(n);
  } catch (...) {
    return false;
  }
  return true;
}

bool RoundMemory::reserve_events(size_t n) noexcept {
  try {
    events.reserve(n);
    ready.reserve(n);
    ended.reserve(n);
    to_write.reserve(n);
  } catch (...) {
    return false;
  }
  return true;
}

}  // namespace dispatch
