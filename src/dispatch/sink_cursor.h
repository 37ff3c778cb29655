/*
 * sink_cursor.h: how far the rows of one sink were read, in each of the ways by which a worker comes across them, and
 * how much the sink may claim in the running round. The main scan reads rows in order of position: the cursor's
 * position is the last one that it has passed.
 */
#pragma once

#include <algorithm>
#include <cstdint>

#include "dispatch/due_cursor.h"
#include "dispatch/early_retry.h"
#include "dispatch/late_transactions.h"
#include "dispatch/troubled_read.h"
#include "dispatch/types.h"

namespace dispatch {

class SinkCursor {
public:
  DueCursor due;
  EarlyRetry early_retry;
  LateTransactions late;
  TroubledRead troubled;

  void begin_round() noexcept;
  void roll_back_round() noexcept;

  /* Every row at or below was seen by the main scan, or is found in another way. */
  int64_t position() const noexcept { return position_; }
  /* The main scan has come farther in this round. */
  bool advanced() const noexcept { return position_ > at_round_begin_; }
  /* All rows must be seen again. */
  void restart(WallTime now) noexcept;
  /* No scan has read since restart() and no event came back, so rows with a time are yet to be found by the due scan.
   */
  bool is_at_start() const noexcept { return at_start_; }
  /* Up to this position no row without a time is of the sink or to be routed, in the snapshot of the round. */
  void start_after(int64_t position) noexcept;
  /* The row at this position was passed, and must be seen again. */
  void rewind(int64_t position) noexcept;

  /* From now on the claimed batch is held in hand: which of its events lie behind a row that must be sent before? One
   * that came back counts also if its key is blocked, and the cursor is not rewound: the key may be free by then. */
  void hold_batch() noexcept { rewound_to_ = POSITION_NONE; }
  void event_came_back(int64_t position) noexcept { rewound_to_ = std::min(rewound_to_, position); }
  bool rewound_before(int64_t position) const noexcept { return position > rewound_to_; }

  /* The sink takes part in the running read of the main scan. A read begins with begin_read(), for each row that it
   * passes it says so, and it ends with end_read(). */
  bool reading() const noexcept { return reading_; }
  void begin_read() noexcept;
  void passed(int64_t position) noexcept { position_ = position; }
  void end_read(bool has_backlog) noexcept;
  /* The main scan may read on for the sink. Rows of a late transaction come before rows that were enqueued after its
   * commit, so they are read first. */
  bool may_read() const noexcept { return free_places_ > 0 && late.empty(); }

  /* There were rows that it had no room for, or that were not read. */
  bool has_backlog() const noexcept { return has_backlog_; }
  void set_has_backlog(bool has_backlog) noexcept { has_backlog_ = has_backlog; }

  /* How many more events it may claim in this round: at most `events`, and none once `bytes` are used up. */
  int free_places() const noexcept { return free_places_; }
  void set_free_places(int events, int64_t bytes) noexcept {
    free_places_ = bytes > 0 ? std::max(events, 0) : 0;
    free_bytes_ = bytes;
  }
  /* Fewer, in this round. */
  void claim_at_most(int events) noexcept { free_places_ = std::min(free_places_, events); }
  void event_claimed(uint32_t bytes) noexcept {
    free_bytes_ -= bytes;
    free_places_ = free_bytes_ > 0 ? free_places_ - 1 : 0;
  }
  /* It was claimed and then not kept. */
  void event_dropped() noexcept { free_places_++; }

  /* The sink would take the event at this position, which is not yet routed: it reads no farther. 0 = none. */
  int64_t unrouted_at() const noexcept { return unrouted_at_; }
  void wait_for_routing(int64_t position) noexcept { unrouted_at_ = position; }
  void routing_over(int64_t position) noexcept;

  /* A transaction has committed late, and its first row has this position. */
  void late_commit(uint64_t xid, int64_t first_row) noexcept;

  /* The low watermark: no row of the sink that may be claimed at once lies below. It is lowered at once when a row
   * comes up, and Dispatch::raise_watermarks() computes it anew from time to time: raise_watermark() tells what is
   * known here, and lower_watermark() is called for all that is known elsewhere. */
  int64_t low_watermark() const noexcept { return low_watermark_; }
  void lower_watermark(int64_t position) noexcept { low_watermark_ = std::min(low_watermark_, position); }
  /* `lowest_blocked`: what BlockedKeys::lowest() says. */
  void raise_watermark(int64_t lowest_blocked) noexcept;
  /* A row of another origin was passed: it may become this one's. */
  void foreign_row_passed(int64_t position) noexcept;

private:
  int64_t position_ = 0;
  int64_t low_watermark_ = 0;
  int64_t free_bytes_ = 0;
  int free_places_ = 0;
  bool reading_ = false;
  bool has_backlog_ = false;
  bool at_start_ = true, was_at_start_ = true; /* was: when the round began */
  int64_t at_round_begin_ = 0;                 /* position_ */
  int64_t rewound_to_ = 0;                     /* the smallest position since the batch is held */
  int64_t unrouted_at_ = 0;
  int64_t first_foreign_ = POSITION_NONE; /* the first row of another origin that was passed */
};

}  // namespace dispatch
