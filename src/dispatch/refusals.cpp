/* refusals.cpp: without memory, a refusal counts as the first one: the event is tried once more. */
#include "dispatch/refusals.h"

#include <algorithm>
#include <new>

namespace dispatch {

int32_t Refusals::add(int64_t position, int32_t attempts) noexcept {
  try {
    int32_t &n = counts_[position];
    const int32_t counted = n = std::min(n, attempts) + 1;
    if (counts_.size() > MOST)
      counts_.erase(counts_.begin());
    return counted;
  } catch (const std::bad_alloc &) {
    return 1;
  }
}

}  // namespace dispatch
