/*
 * classify_row.h: decides what a round of claiming does with a row of this worker. The row is claimed; skipped,
 * because another scan, a later time or another event will bring it back; marked to wait for its key's blocker; or
 * it ends the scan, which will read it again.
 */
#pragma once

#include "dispatch/dispatch.h"
#include "dispatch/row_scan.h"

namespace dispatch {

/* The columns of a row that the decision needs. */
struct Row {
  int64_t position;
  uint64_t key_hash; /* 0 = no key */
  WallTime available_at;
  int64_t blocked_by; /* the group with which the row is marked, 0 = not marked */
  bool failed;        /* its last delivery failed, whether or not that spent an attempt */
  bool redriven;
  RowHandle handle;
};

struct RowDecision {
  RowVerdict verdict;
  const char *reason; /* a string literal; NULL for CLAIM */
  int64_t blocker;    /* the position of the event that is the reason, or 0 */
};

/* Classifies a row that the running round has read; its sink and shard must be this worker's. For every verdict but
 * CLAIM and STOP it also records what will bring the row back. Of a redriven row after RedriveOrder::know(). */
RowDecision classify_row(Dispatch &decisions, const Row &row, RoundSink &sink, RowScan scan) noexcept;

}  // namespace dispatch
