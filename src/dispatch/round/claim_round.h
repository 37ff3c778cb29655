/*
 * claim_round.h: a round of claiming. It reads rows in each of the ways of RowScan, classifies each row, and then
 * checks or locks the rows that it has chosen. It serves all sinks at once, so that a row is read once.
 * The worker and the simulator run this code, each with its port.
 */
#pragma once

#include <cassert>

#include "dispatch/draining.h"
#include "dispatch/round/claim_port.h"

namespace dispatch {

/* How much a round does at once, and how often it looks for blockers that have left the table. */
struct RoundLimits {
  int64_t bytes;                                     /* it claims no more */
  int64_t poll_ms;                                   /* the pause between checks of many blockers */
  size_t draining_keys = RoundMemory::DRAINING_KEYS; /* that are read for each sink; not more than that */
  size_t queue_entries = RoundMemory::QUEUE_ENTRIES; /* that are read of the rescan queue; not more than that */
  int dead_letters = 2000;                           /* that are read */
  int looked_up = 200; /* events that a sink may claim while dead letters or troubled rows that block are unknown */
  int troubled = 2000; /* failing and redriven rows that are read, of all sinks */
  int64_t skipped_min = int64_t{10'000} * 10'001; /* positions that are worth the reads that skip them: 10,000 rows */
};

class ClaimRound {
public:
  ClaimRound(Dispatch &decisions, ClaimPort &port, const RoundLimits &limits)
      : d_(decisions), port_(port), limits_(limits), memory_(decisions.round_memory) {
    assert(limits.draining_keys <= RoundMemory::DRAINING_KEYS && limits.queue_entries <= RoundMemory::QUEUE_ENTRIES);
  }

  /* In a transaction. Fills the sinks' batches. `*rescan` asks for the rescan queue to be read, and comes back true
   * when the next round should read it too. True when there may be more at once. */
  bool run(Now now, bool *rescan);

  /* In a transaction: could a round find anything? One question instead of the several of a round. */
  bool has_news();

  /* Could a round claim something at once, without looking at the table? */
  bool can_go_on(WallTime now);

  /* Outside of one. An event of a batch was not submitted, or came back unsent: it is claimed again, in its order. */
  void return_event(InFlightEvent *event);
  /* The transaction was rolled back: all events of the batches are returned, and each scan goes on where the round
   * began. */
  void give_back();

private:
  bool is_mine(const RoundSink *sink, const Row &row) const;
  bool is_ours(const ReadRow &row) const { return row.sink && row.our_origin && is_mine(row.sink, row.facts); }

  /* claim_round.cpp */
  void mark_returned();
  bool late_can_go_on(const RoundSink &sink);

  /* claim_row.cpp */
  RowVerdict classify(const ReadRow &row, RowScan scan);
  RowDecision decide(const ReadRow &row, RowScan scan);
  RowDecision pass_foreign(const ReadRow &row);

  /* claim_scans.cpp */
  void find_late_commits();
  bool visit(const ReadRow &row, RoundSink &sink, SinkScan *scan, uint64_t draining_key);
  void scan_late(RoundSink &sink);
  bool scan_draining(RoundSink &sink);
  void drain(RoundSink &sink, uint64_t key_hash);
  bool scan_due(RoundSink &sink);
  bool scan_early_retry(RoundSink &sink);
  void skip_to_first_rows();
  bool scan_main();

  /* claim_rescan.cpp */
  bool read_again();
  void claim_locked_rows();
  bool rescan(bool *more);
  bool check_blockers();

  /* claim_keys.cpp */
  bool is_fresh(const ReadRow &row) const;
  void block_by_failing(const ReadRow &row);
  void learn_troubled(const ReadRow &row);
  bool read_troubled();
  void learn_key(RoundSink &sink, uint64_t key_hash);
  void hold_behind_troubled();
  bool looks_up(const RoundSink &sink) const;
  void read_fresh_shards();
  DeadLetter note_dead_letter(const ReadRow &row);
  bool read_dead_letters();
  void hold_behind_dead_letters();
  void find_dead_letters(std::span<const int64_t> positions);
  DeadLetter dead_letter_at(int64_t position) const;
  DrainStops dead_letter_stops(RoundSink &sink, uint64_t key_hash);

  /* claim_lock.cpp */
  void lock_and_mark();
  void drop(InFlightEvent **place, const char *reason);
  void prune(RoundSink &sink);

  Dispatch &d_;
  ClaimPort &port_;
  RoundLimits limits_;
  RoundMemory &memory_;
};
static_assert(std::is_trivially_destructible_v<ClaimRound>);

}  // namespace dispatch
