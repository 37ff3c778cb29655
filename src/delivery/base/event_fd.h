/* event_fd.h: an eventfd by which one thread wakes another that waits in poll(). */
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace outbox {

class EventFd {
public:
  EventFd() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (fd_ < 0)
      throw std::system_error(errno, std::generic_category(), "eventfd");
  }
  ~EventFd() { close(fd_); }
  EventFd(const EventFd &) = delete;
  EventFd &operator=(const EventFd &) = delete;

  int fd() const { return fd_; }
  void wake() const {
    uint64_t one = 1;
    while (write(fd_, &one, sizeof one) < 0 && errno == EINTR)
      ;
  }
  void clear() const {
    uint64_t count;
    while (read(fd_, &count, sizeof count) < 0 && errno == EINTR)
      ;
  }

private:
  const int fd_;
};

}  // namespace outbox
