/* descriptors.h: of the files that this process may have open, those that are left for connections. */
#pragma once

#include <cstddef>

namespace outbox {

/* So many connections may be open at once. Raises the process's own soft limit towards the hard one first: the usual
 * 1,024 would do for an ordinary server process. */
size_t connections_allowed();

/* Is there no descriptor left in this process, or in the system? What failed for that is nobody else's fault. */
bool descriptors_exhausted();

}  // namespace outbox
