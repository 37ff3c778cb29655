/* random.h: everything that happens in a simulation is drawn from its seed. */
#pragma once

#include <cstdint>

namespace simulate {

inline uint64_t mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9U;
  value = (value ^ value >> 27) * 0x94D049BB133111EBU;
  return value ^ value >> 31;
}

inline uint64_t mix(uint64_t a, uint64_t b) {
  return mix(mix(a) ^ b);
}

class Random {
public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() { return mix(state_++); }
  /* 0 to n - 1. */
  int64_t below(int64_t n) { return n <= 0 ? 0 : static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool percent(int chance) { return below(100) < chance; }

private:
  uint64_t state_;
};

}  // namespace simulate
