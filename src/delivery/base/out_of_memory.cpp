/* out_of_memory.cpp: notes that an allocation has failed, without one. */
#include "delivery/base/out_of_memory.h"

#include <sys/eventfd.h>

#include <atomic>

namespace outbox {

static constinit std::atomic<bool> noted = false;
static constinit std::atomic<int> wake_fd = -1;

void out_of_memory() noexcept {
  noted = true;
  if (int fd = wake_fd; fd >= 0)
    (void)eventfd_write(fd, 1);
}

bool is_out_of_memory() noexcept {
  return noted;
}

void set_out_of_memory_fd(int fd) noexcept {
  noted = false;
  wake_fd = fd;
}

}  // namespace outbox
