/*
 * rescan_cursor.cpp: entries of other workers stay in the queue, so a pass does not begin at its beginning: it would
 * read them over and over. A transaction that is older than all that ran during the last pass has nothing to add.
 */
#include "dispatch/rescan_cursor.h"

#include <algorithm>

namespace dispatch {

void RescanCursor::begin_page(uint64_t oldest_running) noexcept {
  state_.next_pass = std::min(state_.next_pass, oldest_running);
}

void RescanCursor::row_kept(uint64_t xact) noexcept {
  state_.next_pass = std::min(state_.next_pass, xact);
}

void RescanCursor::end_pass() noexcept {
  state_ = {{state_.next_pass - 1, INT64_MAX}, UINT64_MAX};
}

void RescanCursor::restart() noexcept {
  state_ = at_round_begin_ = BEGINNING;
}

}  // namespace dispatch
