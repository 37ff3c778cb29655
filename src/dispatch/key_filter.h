/*
 * key_filter.h: tells whether a key may have dead letters or redriven rows: a Bloom filter of fixed size, 2 MB. It
 * never misses a key that has or had one. Of the other keys, one in 500 is taken for such a key beside a million of
 * them, one in 4 beside five million. Each costs an index lookup and a row lock when its event is recorded, so a
 * smaller filter made every delivery four times as expensive beside a million dead letters.
 */
#pragma once

#include <array>
#include <cstdint>

namespace dispatch {

class KeyFilter {
public:
  /* No-op without a key (hash 0). */
  void note(uint64_t key_hash) noexcept {
    if (key_hash == 0)
      return;
    for (int i = 0; i < PROBES; i++)
      words_[bit(key_hash, i) / 64] |= uint64_t{1} << bit(key_hash, i) % 64;
  }
  bool possible(uint64_t key_hash) const noexcept {
    for (int i = 0; i < PROBES; i++)
      if ((words_[bit(key_hash, i) / 64] >> bit(key_hash, i) % 64 & 1) == 0)
        return false;
    return true;
  }

private:
  static constexpr uint64_t BITS = 1 << 24;
  static constexpr int PROBES = 4;

  /* Two halves of one hash give as many hashes as are wanted. */
  static uint64_t bit(uint64_t key_hash, int i) noexcept {
    return (key_hash + static_cast<uint64_t>(i) * (key_hash >> 32 | 1)) % BITS;
  }

  std::array<uint64_t, BITS / 64> words_ = {};
};

}  // namespace dispatch
