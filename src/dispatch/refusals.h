/*
 * refusals.h: how often the destination has refused an event for its own sake (HTTP 400), after which it becomes a
 * dead letter sooner than after other failures, which do not count here. Only in memory: in a new process the count
 * of an event begins again, so it is tried more often, and never less.
 */
#pragma once

#include <cstddef>
#include <cstdint>

#include "dispatch/memory.h"

namespace dispatch {

class Refusals {
public:
  /* One more refusal of the event; returns their number. `attempts`: the failed attempts before, of which a redrive
   * makes 0. */
  int32_t add(int64_t position, int32_t attempts) noexcept;
  void forget(int64_t position) noexcept {
    if (!counts_.empty())
      counts_.erase(position);
  }

private:
  static constexpr size_t MOST = 10'000; /* events that were refused and have not ended */
  HashMap<int64_t, int32_t> counts_;
};

}  // namespace dispatch
