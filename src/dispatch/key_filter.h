/*
 * key_filter.h: tells whether a key may have dead letters or redriven rows. A filter of fixed size, with one bit
 * for each key that has or had one. It never misses such a key. At 500,000 keys the false-positive rate is 40 %; a
 * false positive costs one index lookup when the event is recorded.
 */
#pragma once

#include <array>
#include <cstdint>

namespace dispatch {

class KeyFilter {
public:
  /* No-op without a key (hash 0). */
  void note(uint64_t key_hash) noexcept {
    if (key_hash != 0)
      words_[key_hash % BITS / 64] |= uint64_t{1} << key_hash % 64;
  }
  bool possible(uint64_t key_hash) const noexcept { return words_[key_hash % BITS / 64] >> key_hash % 64 & 1; }

private:
  static constexpr uint64_t BITS = 1 << 20;
  std::array<uint64_t, BITS / 64> words_ = {};
};

}  // namespace dispatch
