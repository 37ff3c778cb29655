/*
 * late_transactions.cpp: what was read stays in the list until the next round begins, so that a rollback needs no
 * copy.
 */
#include "dispatch/late_transactions.h"

#include <algorithm>
#include <cassert>

#include "dispatch/types.h"

namespace dispatch {

void LateTransactions::begin_round() noexcept {
  list_.erase(list_.begin(), list_.begin() + static_cast<std::ptrdiff_t>(n_read_));
  n_read_ = 0;
  n_at_round_begin_ = list_.size();
  for (Entry &entry : list_)
    entry.after_at_round_begin = entry.late.after;
}

void LateTransactions::roll_back_round() noexcept {
  list_.erase(list_.begin() + static_cast<std::ptrdiff_t>(n_at_round_begin_), list_.end());
  n_read_ = 0;
  for (Entry &entry : list_)
    entry.late.after = entry.after_at_round_begin;
}

void LateTransactions::clear() noexcept {
  list_.clear();
  n_read_ = n_at_round_begin_ = 0;
}

void LateTransactions::add(uint64_t xid, int64_t upto) noexcept {
  list_.push_back({{xid, 0, upto}, 0});
}

void LateTransactions::first_read(int64_t position, bool all) noexcept {
  assert(!empty());
  list_[n_read_].late.after = position;
  if (all)
    n_read_++;
}

int64_t LateTransactions::lowest() const noexcept {
  int64_t lowest = POSITION_NONE;

  for (size_t i = n_read_; i < list_.size(); i++)
    lowest = std::min(lowest, list_[i].late.after + 1);
  return lowest;
}

}  // namespace dispatch
