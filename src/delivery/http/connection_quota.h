/*
 * connection_quota.h: how many connections the endpoints of a process may have open, all together and each.
 *
 * An endpoint may have half as many as are free: one alone gets a third of all, a hundred that hang leave some free
 * for every other (the dynamic threshold of shared switch buffers). One that has none gets the last one that is free.
 */
#pragma once

#include <cstddef>

namespace outbox {

class ConnectionQuota {
public:
  explicit ConnectionQuota(size_t total) : total_(total) {}

  bool may_open(size_t of_endpoint) const {
    size_t free = total_ > open_ ? total_ - open_ : 0;
    return of_endpoint == 0 ? free > 0 : 2 * of_endpoint < free;
  }
  void opened() { open_++; }
  void closed() { open_--; }

  size_t open() const { return open_; }
  size_t total() const { return total_; }
  void set_total(size_t total) { total_ = total; }

private:
  size_t total_;
  size_t open_ = 0;
};

}  // namespace outbox
