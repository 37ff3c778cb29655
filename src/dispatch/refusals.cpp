/* refusals.cpp: a full table forgets one of its events, which is then tried more often. */
#include "dispatch/refusals.h"

#include <algorithm>

namespace dispatch {

int32_t Refusals::add(int64_t position, int32_t attempts) noexcept {
  int32_t &n = counts_[position];
  const int32_t counted = n = std::min(n, attempts) + 1;
  if (counts_.size() > MOST)
    counts_.erase(counts_.begin());
  return counted;
}

}  // namespace dispatch
