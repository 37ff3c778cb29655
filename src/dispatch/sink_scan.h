/*
 * sink_scan.h: one read of a scan that serves a single sink: rows of a late transaction, marked rows of a draining
 * key, or due rows. It ends before the first row for which there is no room: to read past it would send a later event
 * of its key before it.
 */
#pragma once

#include <type_traits>

#include "dispatch/row_scan.h"
#include "dispatch/sink_cursor.h"

namespace dispatch {

struct SinkScan {
  RowScan scan; /* LATE, DRAINING or DUE */
  SinkCursor *cursor;
  int limit;             /* so many rows are read at most */
  int64_t last_position; /* the last row that was passed; at first: the one after which the read begins */
  int64_t below;         /* DRAINING: only rows below this position are claimed */

  int n_rows = 0;
  bool stopped = false; /* the read ended before a row */
  bool reached = false; /* DRAINING: that was since it is not below `below` */

  /* The next row was read. True: the read ends before it, without a decision about it. */
  bool ends_before(int64_t position, WallTime available_at, WallTime now) noexcept;
  /* The row was classified, or skipped since it is another sink's. `routed`: it has a sink here. False: the read ends
   * before it. */
  bool row_read(int64_t position, WallTime available_at, RowVerdict verdict, bool routed) noexcept;

  /* No row is left, below `below` where that counts. */
  bool all_read() const noexcept { return reached || (!stopped && n_rows < limit); }
};
static_assert(std::is_trivially_destructible_v<SinkScan>);

}  // namespace dispatch
