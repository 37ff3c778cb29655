/* types.h: what the decisions call the things of the table. */
#pragma once

#include <cstddef>
#include <cstdint>

namespace dispatch {

using SinkId = uint32_t; /* the server's Oid; 0 = none */

inline constexpr int64_t POSITION_NONE = INT64_MAX; /* of the first row, when there is none */

/* A key of a sink, for hash tables. */
struct KeyId {
  SinkId sink;
  uint64_t key_hash;
  bool operator==(const KeyId &) const = default;
};
struct KeyIdHash {
  size_t operator()(const KeyId &id) const noexcept { return id.key_hash ^ id.sink * 0x9E3779B97F4A7C15U; }
};

/* Where the server finds a row. Stored here, and never read. */
struct RowHandle {
  uint32_t page;
  uint16_t line;
  uint32_t writer;
  uint32_t table;
};

}  // namespace dispatch
