/*
 * late_commits.cpp: a snapshot lists running transactions only below its xmax, and xmax is the id after the last
 * one that has ended. So the youngest running transactions lie between xmax and the next id, and all of these are
 * noted. Noting one too many costs one index lookup; missing one would lose its events.
 */
#include "dispatch/late_commits.h"

#include <algorithm>

namespace dispatch {

static constexpr uint32_t FIRST_NORMAL_XID = 3; /* ids 0 to 2 of every epoch are reserved */

static bool is_running(const TransactionSnapshot &snapshot, uint64_t xid) {
  const uint64_t *end = snapshot.running + snapshot.n_running;

  return xid >= snapshot.xmax || std::find(snapshot.running, end, xid) != end;
}

void LateCommits::find_ended(const TransactionSnapshot &snapshot) noexcept {
  ended_.clear();
  for (uint64_t xid : running_)
    if (!is_running(snapshot, xid))
      ended_.push_back(xid);
}

void LateCommits::note_running(const TransactionSnapshot &snapshot) noexcept {
  running_.swap(running_before_);
  noted_ = true;
  running_.assign(snapshot.running, snapshot.running + snapshot.n_running);
  for (uint64_t xid = snapshot.xmax; xid < snapshot.next; xid++)
    if (static_cast<uint32_t>(xid) >= FIRST_NORMAL_XID)
      running_.push_back(xid);
}

void LateCommits::roll_back_round() noexcept {
  if (noted_)
    running_.swap(running_before_);
  noted_ = false;
}

uint64_t xid_with_epoch(uint32_t xid, uint64_t next) noexcept {
  const uint64_t epoch = (next >> 32) - (xid > static_cast<uint32_t>(next) ? 1 : 0);

  return epoch << 32 | xid;
}

}  // namespace dispatch
