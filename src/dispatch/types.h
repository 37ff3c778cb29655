/* types.h: what the decisions call the things of the table. */
#pragma once

#include <cstdint>

namespace dispatch {

using SinkId = uint32_t; /* the server's Oid; 0 = none */

inline constexpr int64_t POSITION_NONE = INT64_MAX; /* of the first row, when there is none */

}  // namespace dispatch
