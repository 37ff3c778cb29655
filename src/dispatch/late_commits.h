/*
 * late_commits.h: finds late commits: transactions that took positions before others that are already claimed, and
 * commit after them. They are found without searching rows: a transaction that was running in the last round's
 * snapshot, and is not running in this one's, has ended in between, and its rows are looked up by its transaction
 * id. All ids include the epoch.
 * The producer must guarantee two things: a transaction has its id before it takes its first position, and the
 * sequence of positions has CACHE 1.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dispatch/memory.h"

namespace dispatch {

/* The running transactions, as a snapshot shows them. */
struct TransactionSnapshot {
  const uint64_t *running; /* ids in progress below xmax, in no order */
  size_t n_running;
  uint64_t xmax; /* all ids from here on count as running */
  uint64_t next; /* the next id to be assigned, read after the snapshot was taken */
};

class LateCommits {
public:
  void begin_round() noexcept { noted_ = false; }
  void commit_round() noexcept { noted_ = false; }
  /* The transactions that the round has found to have ended are found again. */
  void roll_back_round() noexcept;

  /* Finds the noted transactions that have ended; ended() has them. */
  void find_ended(const TransactionSnapshot &snapshot) noexcept;
  std::span<const uint64_t> ended() const noexcept { return ended_; }

  /* Notes the running transactions for the next find_ended(), at most once in a round. Call it after the rows of the
   * ended ones were looked up. */
  void note_running(const TransactionSnapshot &snapshot) noexcept;

private:
  Vector<uint64_t> running_, ended_;
  Vector<uint64_t> running_before_; /* what the last note_running() has replaced */
  bool noted_ = false;              /* that was in this round */
};

/* Adds the epoch to a transaction id that is running or has just ended: such an id is at most 2^31 behind `next`. */
uint64_t xid_with_epoch(uint32_t xid, uint64_t next) noexcept;

}  // namespace dispatch
