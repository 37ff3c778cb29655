/*
 * marks.cpp: events can be returned while a round is being committed. So commit_round() removes only those that its
 * round has taken up.
 */
#include "dispatch/marks.h"

#include <algorithm>

namespace dispatch {

void Marks::add(const Mark &mark) noexcept {
  marks_.push_back(mark);
}

bool Marks::has(int64_t position, SinkId sink, uint64_t key_hash) const noexcept {
  return std::any_of(marks_.begin(), marks_.end(), [=](const Mark &mark) {
    return mark.position == position && mark.sink == sink && mark.key_hash == key_hash;
  });
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
