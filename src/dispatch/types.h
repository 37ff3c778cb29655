/* types.h: the identifiers that all parts of dispatch use. */
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace dispatch {

using SinkId = uint32_t; /* the server's Oid; 0 = none */

inline constexpr int64_t POSITION_NONE = INT64_MAX; /* "no position" in searches for the lowest one */

/* Positions are drawn in steps of this. An event that waits for a sink, and that several sinks take later, has one
 * row for each sink: the further rows get the positions after that of the first row, so each sorts before whatever
 * was enqueued later. The step is odd, so that events without a key, whose shard is their position modulo 256, are in
 * all shards. */
inline constexpr int64_t POSITION_STEP = 10001;

/* The options of a sink that decide what comes next for an event. */
struct SinkRules {
  int32_t max_attempts;
  bool ordered;
  bool dead_letters_block; /* on_dead_letter 'block': a dead letter blocks its key until a user acts on it */
};

/* Why a transaction of the worker failed. */
enum class Fault : uint8_t {
  NONE,      /* it did not */
  OF_SERVER, /* a lock, a full disk, a shutdown */
  OF_ROWS,   /* a row of the batch, unknown which: a trigger, a constraint */
  OF_ONE_ROW /* that cannot be read, and that claims skip from now on */
};

/* Identifies a key of a sink in hash tables. */
struct KeyId {
  SinkId sink;
  uint64_t key_hash;
  auto operator<=>(const KeyId &) const = default;
};
struct KeyIdHash {
  size_t operator()(const KeyId &id) const noexcept { return id.key_hash ^ id.sink * 0x9E3779B97F4A7C15U; }
};

/* Where the server finds a row. Dispatch stores it and never reads it. */
struct RowHandle {
  uint32_t page;
  uint16_t line;
  uint32_t writer;
  uint32_t table;
};

}  // namespace dispatch
