/* types.h: what the decisions call the things of the table. */
#pragma once

#include <cstdint>

namespace dispatch {

using SinkId = uint32_t; /* the server's Oid; 0 = none */

}  // namespace dispatch
