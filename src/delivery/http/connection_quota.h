/*
 * connection_quota.h: limits how many connections the endpoints of a process may open, all together and each.
 *
 * An endpoint may have half as many connections as are free: a single busy one gets a third of all, and a hundred
 * hanging ones leave some free for every other (the dynamic threshold of shared-memory switches). An endpoint
 * without a connection may take the last free one.
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
