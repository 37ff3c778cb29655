/* shard_set.h: the fixed shards over which keys are spread, and a set of them. A plain struct, because it lies in
 * shared memory. */
#pragma once

#include <cstdint>
#include <type_traits>

namespace dispatch {

inline constexpr int SHARDS = 256;

/* Events without a key (hash 0) are spread by position. */
inline constexpr int shard_of(uint64_t key_hash, int64_t position) {
  return static_cast<int>((key_hash != 0 ? key_hash : static_cast<uint64_t>(position)) % SHARDS);
}

/* Zeroed memory is the empty set. */
struct ShardSet {
  uint64_t words[SHARDS / 64];

  constexpr bool has(int shard) const { return words[shard / 64] >> shard % 64 & 1; }
  constexpr void add(int shard) { words[shard / 64] |= uint64_t(1) << shard % 64; }
  constexpr void remove(int shard) { words[shard / 64] &= ~(uint64_t(1) << shard % 64); }
  constexpr bool empty() const {
    for (uint64_t word : words)
      if (word != 0)
        return false;
    return true;
  }

  friend constexpr ShardSet operator|(ShardSet a, const ShardSet &b) {
    for (int i = 0; i < SHARDS / 64; i++)
      a.words[i] |= b.words[i];
    return a;
  }

  /* The shards of a that are not in b. */
  friend constexpr ShardSet operator-(ShardSet a, const ShardSet &b) {
    for (int i = 0; i < SHARDS / 64; i++)
      a.words[i] &= ~b.words[i];
    return a;
  }
};

static_assert(std::is_trivial_v<ShardSet> && std::is_standard_layout_v<ShardSet>);

}  // namespace dispatch
