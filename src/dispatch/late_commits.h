/*
 * late_commits.h: transactions that drew positions before others that are already claimed, and commit after them. No
 * row is searched for them: a transaction that ran at the last round's snapshot, and does not run at this one's, has
 * ended meanwhile, and its rows are looked up by its id. All ids are with their epoch.
 * This needs two things of the producer: a transaction id before the first position, and a sequence with CACHE 1.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dispatch {

/* What a snapshot says about transactions. */
struct TransactionSnapshot {
  const uint64_t *running; /* in progress, and below xmax; in no order */
  size_t n_running;
  uint64_t xmax; /* this transaction and all later ones count as running */
  uint64_t next; /* the next id to be given out, read after the snapshot was taken */
};

class LateCommits {
public:
  void begin_round() noexcept { noted_ = false; }
  void commit_round() noexcept { noted_ = false; }
  /* The transactions that the round has found to have ended are found again. */
  void roll_back_round() noexcept;

  /* Which of the noted transactions have ended: ended_count() of them. False: out of memory. */
  bool find_ended(const TransactionSnapshot &snapshot) noexcept;
  int ended_count() const noexcept { return static_cast<int>(ended_.size()); }
  uint64_t ended(int i) const noexcept { return ended_[i]; }

  /* What the next find_ended() compares with: after the rows of those that ended were looked up, at most once in a
   * round. False: out of memory, and nothing is changed. */
  bool note_running(const TransactionSnapshot &snapshot) noexcept;

private:
  std::vector<uint64_t> running_, ended_;
  std::vector<uint64_t> running_before_; /* what the last note_running() has replaced */
  bool noted_ = false;                   /* that was in this round */
};

/* A transaction id with its epoch: one that runs or has just ended is never more than 2^31 behind the next one. */
uint64_t xid_with_epoch(uint32_t xid, uint64_t next) noexcept;

}  // namespace dispatch
