/*
 * main_scan.h: reads rows in order of position, for all sinks. One read serves all sinks whose cursors stand at the
 * same position, which is all of them but those that lag. A round reads once for each position, the lowest first.
 */
#pragma once

#include "dispatch/round.h"
#include "dispatch/round_sink.h"
#include "dispatch/row_scan.h"

namespace dispatch {

/* The rows above a position, in order, at most so many. */
struct MainRead {
  int64_t after;
  int limit;
};

class MainScan {
public:
  explicit MainScan(const RoundSinks &sinks) : sinks_(sinks) {}

  /* The main scan of a round begins: reads follow until begin_read() says that it is over. */
  void begin_round() noexcept;

  /* False: no sink reads on in this round, or the round is full. */
  bool begin_read(const Round &round, MainRead *read) noexcept;
  /* The next row of the read was classified. `cursor` is that of its sink; nullptr: it is not yet routed, or its sink
   * is unknown. False: the read ends here, since no sink has room for the rows that follow. */
  bool row_read(int64_t position, RowVerdict verdict, SinkCursor *cursor) noexcept {
    n_rows_++;
    last_position_ = position;
    if (verdict == RowVerdict::CLAIM)
      cursor->passed(position);
    else if (verdict == RowVerdict::STOP)
      stop_before(position, cursor);
    return n_reading_ > 0;
  }
  /* The sinks that have read to the end have passed all rows of the read. */
  void end_read() noexcept;

  /* Some read of this round ended at its limit. */
  bool more() const noexcept { return more_; }

private:
  void stop_before(int64_t position, SinkCursor *cursor) noexcept;

  const RoundSinks &sinks_;
  int64_t from_ = 0; /* sinks below have had their read */
  bool more_ = false;

  /* The running read. */
  int n_reading_ = 0; /* sinks that still take part */
  int n_rows_ = 0, limit_ = 0;
  int64_t last_position_ = 0;
};

}  // namespace dispatch
