/*
 * late_transactions.h: the transactions that committed late (late_commits.h) and have rows behind a sink's cursor.
 * Their rows are read by the transaction's id, one transaction after the other.
 */
#pragma once

#include <cstddef>
#include <cstdint>

#include "dispatch/memory.h"

namespace dispatch {

struct LateTransaction {
  uint64_t xid;
  int64_t after; /* its rows were read up to here */
  int64_t upto;  /* the sink's cursor when it was found: the main scan reads the rows above */
};

class LateTransactions {
public:
  void begin_round() noexcept;
  /* Transactions that were found in the round are forgotten: LateCommits finds them again. */
  void roll_back_round() noexcept;
  void clear() noexcept;

  bool empty() const noexcept { return n_read_ == list_.size(); }
  void add(uint64_t xid, int64_t upto) noexcept;

  /* The one to read from; there must be one. */
  const LateTransaction &first() const noexcept { return list_[n_read_].late; }
  /* Its rows were read up to this position; these were `all` of them, and the next transaction is the first. */
  void first_read(int64_t position, bool all) noexcept;

  /* No row that is yet to be read lies below; POSITION_NONE when there is none. */
  int64_t lowest() const noexcept;

private:
  struct Entry {
    LateTransaction late;
    int64_t after_at_round_begin;
  };

  Vector<Entry> list_;
  size_t n_read_ = 0;           /* the first so many were read in this round */
  size_t n_at_round_begin_ = 0; /* the others were found in this round */
};

}  // namespace dispatch
