/* row_scan.h: the ways in which a round comes across rows, and what becomes of a row. */
#pragma once

#include <algorithm>
#include <cstdint>

namespace dispatch {

/* How a round came across the row. */
enum class RowScan : uint8_t {
  MAIN,     /* in order of position */
  LATE,     /* it is of a transaction that committed late */
  DRAINING, /* marked, and its key drains */
  DUE,      /* its time has come */
  RESCAN    /* it is named by the rescan queue, or was locked before */
};

enum class RowVerdict : uint8_t {
  CLAIM,
  SKIP,
  BLOCK, /* it was marked */
  STOP   /* its sink, or the worker, has no room */
};

/* One read sees at most this many rows, so that the worker stays responsive and its transaction short. */
inline constexpr int READ_MAX = 10000;
/* A read by an index costs about as much for one row as for this many. */
inline constexpr int READ_MIN = 256;

/* How many rows a scan of one sink reads at once: one more than it can claim tells that there are more. */
inline int read_limit(int free_places) noexcept {
  return std::clamp(free_places + 1, READ_MIN, READ_MAX);
}

}  // namespace dispatch
