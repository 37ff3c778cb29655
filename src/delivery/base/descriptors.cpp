/*
 * descriptors.cpp: a worker may run out of file descriptors while hundreds of requests hang. The soft limit is
 * raised towards the hard one, and 256 descriptors are kept for the server's own files. Each library with kinds of
 * sink opens the number of connections that would be allowed to it alone, so a new one is also refused when nearly
 * all descriptors of the process are in use: the kernel gives the lowest free number.
 */
#include "delivery/base/descriptors.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace outbox {

static constexpr rlim_t for_the_server = 256;  // tables, WAL, libraries
static constexpr rlim_t per_connection = 2;    // a resolver's socket pair, or one socket per address family
static constexpr rlim_t most = 4096;

size_t connections_allowed() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
    return 16;
  rlim_t wanted = std::min(limit.rlim_max, for_the_server + per_connection * most);
  if (limit.rlim_cur < wanted) {
    rlim_t before = std::exchange(limit.rlim_cur, wanted);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
      limit.rlim_cur = before;
  }
  rlim_t left = limit.rlim_cur > for_the_server ? limit.rlim_cur - for_the_server : 0;
  return std::clamp<rlim_t>(left / per_connection, 16, most);
}

bool is_for_the_server(int fd) {
  constexpr rlim_t last = 64;
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
         static_cast<rlim_t>(fd) + std::min(last, limit.rlim_cur / 4) >= limit.rlim_cur;
}

bool descriptors_exhausted() {
  int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (fd >= 0)
    close(fd);
  return fd < 0 && (errno == EMFILE || errno == ENFILE);
}

}  // namespace outbox
