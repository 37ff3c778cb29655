/* descriptors.h: how many file descriptors of this process network connections may use. */
#pragma once

#include <cstddef>

namespace outbox {

/* Returns how many connections may be open at once. First raises the process's soft limit towards the hard one: the
 * usual 1,024 is enough only for an ordinary server process. */
size_t connections_allowed();

/* Whether this new descriptor is one of the last of the process: the server's own files need those. */
bool is_for_the_server(int fd);

/* Whether this process or the system has run out of descriptors. Then a failed request is not the endpoint's fault.
 */
bool descriptors_exhausted();

}  // namespace outbox
