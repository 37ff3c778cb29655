/*
 * sink_scan.cpp: a late row that is not yet routed may have been enqueued before its sink was made. The sinks that
 * take it wait until it is routed; others pass it.
 */
#include "dispatch/sink_scan.h"

namespace dispatch {

bool SinkScan::ends_before(int64_t position, WallTime available_at, WallTime now) noexcept {
  n_rows++;
  if (scan == RowScan::DUE && available_at > now) {
    cursor->due.stop_before(available_at);
    stopped = true;
  } else if (scan == RowScan::DRAINING && position >= below) {
    stopped = reached = true;
  }
  return stopped;
}

bool SinkScan::row_read(int64_t position, WallTime available_at, RowVerdict verdict, bool routed) noexcept {
  if (verdict == RowVerdict::STOP && (routed || cursor->unrouted_at() == position)) {
    stopped = true;
    cursor->set_has_backlog(routed);
    if (scan == RowScan::DUE)
      cursor->due.stop_before(available_at);
    return false;
  }
  last_position = position;
  if (scan == RowScan::DUE)
    cursor->due.passed(available_at, position);
  return true;
}

}  // namespace dispatch
