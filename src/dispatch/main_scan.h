/*
 * main_scan.h: reads rows in order of position, for all sinks. A read begins at the sink that lags most, and each
 * other sink takes part from the row after its own cursor on. Where no cursor lies for many rows, the read ends, and
 * another begins at the next cursor. So a thousand sinks that have come differently far cost one read, and one that
 * lags far behind costs the others nothing.
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

  /* How many rows a read sees, READ_MIN and READ_MAX unless told. */
  void read_between(int least, int most) noexcept {
    least_ = least;
    most_ = most;
  }

  /* The main scan of a round begins: reads follow until begin_read() says that it is over. */
  void begin_round() noexcept;

  /* False: no sink reads on in this round, or the round is full. */
  bool begin_read(const Round &round, MainRead *read) noexcept;
  /* The next row of the read was classified. `cursor` is that of its sink; nullptr: it is not yet routed, or its sink
   * is unknown. False: the read ends here, since no sink has room for the rows that follow, or none is near. */
  bool row_read(int64_t position, RowVerdict verdict, SinkCursor *cursor) noexcept {
    n_rows_++;
    last_position_ = position;
    while (n_joined_ < starts_.size() && starts_[n_joined_] < position)
      n_joined_++;
    if (verdict == RowVerdict::CLAIM)
      cursor->passed(position);
    else if (verdict == RowVerdict::STOP)
      stop_before(position, cursor);
    if (n_joined_ > n_left_)
      n_for_nobody_ = 0;
    else if (n_joined_ == starts_.size() || ++n_for_nobody_ >= least_)
      ended_early_ = true;
    return !ended_early_;
  }
  /* The sinks that have read to the end have passed all rows of the read. */
  void end_read() noexcept;

  /* Some read of this round ended at its limit. */
  bool more() const noexcept { return more_; }

private:
  /* The sink has read as far as it can. */
  void leave(SinkCursor *cursor, bool has_backlog) noexcept;
  void stop_before(int64_t position, SinkCursor *cursor) noexcept;

  const RoundSinks &sinks_;
  int least_ = READ_MIN, most_ = READ_MAX;
  int64_t from_ = 0; /* sinks below have had their read */
  bool more_ = false;

  /* The running read. */
  Vector<int64_t> starts_; /* the cursors of the sinks that take part, in order */
  size_t n_joined_ = 0;    /* of these, the ones that the read has passed … */
  size_t n_left_ = 0;      /* … and those of them that read no farther */
  int n_for_nobody_ = 0;   /* the last rows, before which all who had joined had left */
  bool ended_early_ = false;
  int n_rows_ = 0, limit_ = 0;
  int64_t last_position_ = 0;
};

}  // namespace dispatch
