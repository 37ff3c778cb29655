/*
 * locked_rows.cpp: a user's UPDATE of a whole backlog locks every row of it. So memory and time are bounded: the
 * main scan stops at 20,000 locked rows, and each row in the list adds 0.1 ms to the pause. Pauses end
 * together, at most 20 times a second: the rows are read again by the hundred, not each in its own transaction.
 */
#include "dispatch/locked_rows.h"

#include <algorithm>
#include <iterator>

namespace dispatch {

static constexpr size_t ROWS_MAX = 20000;
static constexpr int64_t PAUSE_MS = 200;
static constexpr int64_t STEP_MS = 50;
static constexpr int64_t ROWS_PER_STEP = 500;

void LockedRows::begin_round(Moment now) noexcept {
  round_began_ = now;
  looked_.clear();
}

void LockedRows::commit_round() noexcept {
  looked_.clear();
}

void LockedRows::roll_back_round() noexcept {
  for (size_t i = 0; i < looked_.size(); i++)
    put_back(static_cast<int>(i));
  looked_.clear();
}

static Moment next_step(Moment moment) {
  const int64_t step_us = STEP_MS * 1000;

  return {(moment.us + step_us - 1) / step_us * step_us};
}

void LockedRows::add(int64_t position, SinkId sink, uint64_t key_hash) noexcept {
  const int64_t steps = static_cast<int64_t>(rows_.size()) / ROWS_PER_STEP;
  const Moment pause_ends = moment_after(round_began_, PAUSE_MS + steps * STEP_MS);

  rows_.push_back({position, key_hash, sink, false, next_step(pause_ends)});
}

bool LockedRows::has(int64_t position) const noexcept {
  return std::ranges::any_of(rows_, [=](const LockedRow &row) { return row.position == position; });
}

void LockedRows::take_due() noexcept {
  const auto due = [this](const LockedRow &row) { return is_due(row); };

  std::copy_if(rows_.begin(), rows_.end(), std::back_inserter(looked_), due);
  std::erase_if(rows_, due);
}

void LockedRows::keep(int i, SinkId sink, uint64_t key_hash) noexcept {
  looked_[i].sink = sink;
  looked_[i].key_hash = key_hash;
  put_back(i);
}

void LockedRows::put_back(int i) noexcept {
  if (!looked_[i].listed)
    add(looked_[i].position, looked_[i].sink, looked_[i].key_hash);
  looked_[i].listed = true;
}

int64_t LockedRows::first_of_key(SinkId sink, uint64_t key_hash) const noexcept {
  int64_t first = POSITION_NONE;

  for (const LockedRow &row : rows_)
    if (row.key_hash == key_hash && row.sink == sink)
      first = std::min(first, row.position);
  return first;
}

int64_t LockedRows::first() const noexcept {
  int64_t first = POSITION_NONE;

  for (const LockedRow &row : rows_)
    first = std::min(first, row.position);
  return first;
}

bool LockedRows::full() const noexcept {
  return rows_.size() >= ROWS_MAX;
}

Moment LockedRows::next_moment() const noexcept {
  return rows_.empty() ? MOMENT_NEVER : rows_.front().look_at;
}

}  // namespace dispatch
