/*
 * classify_row.h: what a round of claiming does with a row that belongs to this worker: it is claimed, skipped (not
 * now: another scan, a later moment or another event sees to it), marked to wait behind its key's blocker, or it ends
 * the scan, which comes back to it.
 */
#pragma once

#include "dispatch/dispatch.h"
#include "dispatch/row_scan.h"

namespace dispatch {

/* What a row says. */
struct Row {
  int64_t position;
  uint64_t key_hash; /* 0 = no key */
  WallTime available_at;
  int64_t blocked_by; /* the group that it is marked with, 0 = none */
  int32_t attempts;
  bool redriven;
  bool former_name; /* of its sink: due rows are found by the present one */
  RowHandle handle;
};

/* The row's sink, as it stands in the round. */
struct RowSink {
  SinkInFlight *in_flight;
  SinkCursor *cursor;
  bool ordered;

  SinkId id() const noexcept { return in_flight->id; }
};

struct RowDecision {
  RowVerdict verdict;
  const char *reason; /* a literal; NULL for CLAIM */
  int64_t blocker;    /* the event that is the reason, or 0 */
};

/* What to do with a row of the running round, of a sink and shard that are this worker's. Unless it is claimed, what
 * is to be remembered of it is. */
RowDecision classify_row(Dispatch &decisions, const Row &row, const RowSink &sink, RowScan scan) noexcept;

}  // namespace dispatch
