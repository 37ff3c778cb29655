/*
 * marks.cpp: events can be returned while a round is being committed. So commit_round() removes only those that its
 * round has taken up. The marks end with their round: if the next one has no memory to begin, its rollback undoes
 * none of them.
 */
#include "dispatch/marks.h"

#include <algorithm>
#include <cassert>

namespace dispatch {

void Marks::begin_round() {
  assert(marks_.empty());
  marks_.reserve(returned_.size());
}

void Marks::make_room() {
  if (!has_room())
    marks_.reserve(2 * (marks_.size() + 8));
}

void Marks::add(const Mark &mark) noexcept {
  assert(has_room());
  marks_.push_back(mark);
}

bool Marks::has(int64_t position) const noexcept {
  return std::any_of(marks_.begin(), marks_.end(),
                     [position](const Mark &mark) { return mark.position == position; });
}

bool Marks::add_returned(const Mark &mark) noexcept {
  try {
    returned_.push_back(mark);
  } catch (...) {
    return false;
  }
  return true;
}

std::span<Mark> Marks::take_up_returned() noexcept {
  n_taken_up_ = returned_.size();
  return returned_;
}

void Marks::commit_round() noexcept {
  marks_.clear();
  returned_.erase(returned_.begin(), returned_.begin() + static_cast<std::ptrdiff_t>(n_taken_up_));
  n_taken_up_ = 0;
}

void Marks::roll_back_round() noexcept {
  marks_.clear();
  returned_.clear();
  n_taken_up_ = 0;
}

}  // namespace dispatch
