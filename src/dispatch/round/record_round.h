/*
 * record_round.h: a transaction that records how events have ended: delivered rows are deleted (or move to SENT),
 * failed ones get the time of their next attempt, dead letters move to FAILED. It locks their rows, asks what becomes
 * of each (recording.h), and writes all of one kind at once. A row that a user has locked is recorded later; its
 * event is never sent again. The worker and the simulator run this code, each with its port.
 */
#pragma once

#include "dispatch/round/record_port.h"

namespace dispatch {

class RecordRound {
public:
  RecordRound(Dispatch &decisions, RecordPort &port) : d_(decisions), port_(port), memory_(decisions.round_memory) {}

  /* In a transaction. After it: committed() or rolled_back(). */
  void run(Now now);

  /* It has committed, and its WAL ends at `lsn`: gives up the entries of recorded events. True when a sink may claim
   * more, as fewer of its events are left unrecorded than before. */
  bool committed(uint64_t lsn);

  /* It was rolled back. `failed`: by an error of the recording; `of_rows`: the rows that it recorded may be the
   * reason. */
  Recording::Failure rolled_back(bool failed, bool of_rows);

private:
  size_t delete_unmodified(std::span<InFlightEvent *> events);
  void record_sent(std::span<InFlightEvent *const> events, Now now);
  void lock(std::span<InFlightEvent *const> events);
  void write(Now now);
  void prepare(Disposition disposition, RowToWrite *row, Now now);
  void mark_overtaken(std::span<InFlightEvent *const> sent, Moment now);
  bool count_left(bool all_failed);

  Dispatch &d_;
  RecordPort &port_;
  RoundMemory &memory_;
};
static_assert(std::is_trivially_destructible_v<RecordRound>);

}  // namespace dispatch
