/*
 * rescan_cursor.h: how far the rescan queue was read. The queue names rows that users or the router have changed
 * behind the sinks' cursors, in order of transaction and position. It is read in pages. When a pass is over, the next
 * one begins with the oldest transaction that may still add to what was read: one that ran during the pass, or one
 * that named a row for which there was no room.
 */
#pragma once

#include <cstdint>

namespace dispatch {

struct RescanPlace {
  uint64_t xact;
  int64_t position;
  bool operator==(const RescanPlace &) const = default;
};

class RescanCursor {
public:
  void begin_round() noexcept { at_round_begin_ = state_; }
  void roll_back_round() noexcept { state_ = at_round_begin_; }

  /* The next page begins after this entry. */
  const RescanPlace &after() const noexcept { return state_.after; }

  /* A page is read by a snapshot in which this transaction is the oldest that runs. */
  void begin_page(uint64_t oldest_running) noexcept;
  /* There was no room for a row that this transaction named: the entry stays in the queue. */
  void row_kept(uint64_t xact) noexcept;
  /* The page was full, and this was its last entry; or it was not full, and the pass is over. */
  void end_page(const RescanPlace &last) noexcept { state_.after = last; }
  void end_pass() noexcept;

  /* Entries that belonged to other workers may be this worker's now: the whole queue is read again. */
  void restart() noexcept;

private:
  struct State {
    RescanPlace after;
    uint64_t next_pass; /* the transaction with which it begins */
  };
  static constexpr State BEGINNING = {{0, 0}, UINT64_MAX};

  State state_ = BEGINNING, at_round_begin_ = BEGINNING;
};

}  // namespace dispatch
