/*
 * table.cpp: a version is found by position and line, as the server finds it by ctid; a snapshot never sees a commit
 * that came after it, however late its transaction began.
 */
#include "test/simulate/table.h"

#include <algorithm>
#include <cassert>

namespace simulate {

Table::Table() {
  rows_.emplace_back(); /* positions begin with 1 */
  xacts_.reserve(4096);
  by_xact_.reserve(4096);
}

/* ---- transactions -------------------------------------------------------------------------------------------- */

Xid Table::add(Xid parent) {
  while (static_cast<uint32_t>(next_xid()) < 3) { /* reserved in every epoch */
    xacts_.emplace_back();
    by_xact_.emplace_back();
  }
  const Xid xid = next_xid();
  xacts_.push_back({XactState::RUNNING, false, parent, 0, 0});
  by_xact_.emplace_back();
  return xid;
}

Xid Table::begin() {
  const Xid xid = add(NO_XID);
  running_.push_back(xid);
  return xid;
}

Xid Table::begin_sub(Xid parent) {
  return add(parent);
}

void Table::end(Xid xid, XactState state) {
  at(xid).state = state;
  latest_completed_ = std::max(latest_completed_, xid);
  if (at(xid).parent != NO_XID)
    return;
  std::erase(running_, xid);
  for (Xid sub = xid + 1; sub < next_xid(); sub++)
    if (at(sub).parent == xid) {
      if (at(sub).state == XactState::RUNNING)
        at(sub).state = state;
      latest_completed_ = std::max(latest_completed_, sub);
    }
}

void Table::abort(Xid xid) {
  end(xid, XactState::ABORTED);
}

uint64_t Table::commit(Xid xid, bool flush_it) {
  assert(is_running(xid));
  at(xid).lsn = ++lsn_;
  at(xid).committed_at = step();
  end(xid, XactState::COMMITTED);
  if (flush_it)
    flush(lsn_);
  return lsn_;
}

bool Table::is_running(Xid xid) const {
  return xid != NO_XID && xact(xid).state == XactState::RUNNING && xact(top(xid)).state == XactState::RUNNING;
}

bool Table::is_committed(Xid xid) const {
  return xact(xid).state == XactState::COMMITTED && xact(top(xid)).state == XactState::COMMITTED;
}

Snapshot Table::snapshot(Xid own) const {
  Snapshot snapshot;
  snapshot.xmax = latest_completed_ + 1;
  snapshot.next = next_xid();
  snapshot.own = own;
  snapshot.xmin = snapshot.xmax;
  for (Xid xid : running_)
    if (xid < snapshot.xmax && xid != own) {
      snapshot.running.push_back(xid);
      snapshot.xmin = std::min(snapshot.xmin, xid);
    }
  return snapshot;
}

bool Table::sees(const Snapshot &snapshot, Xid xid) const {
  if (xid == snapshot.own)
    return true;
  if (xid < snapshot.xmin) /* it has ended, and so has its parent */
    return is_committed(xid);
  const Xid its_top = top(xid);
  return xid < snapshot.xmax && is_committed(xid) &&
         std::find(snapshot.running.begin(), snapshot.running.end(), its_top) == snapshot.running.end();
}

void Table::crash() {
  for (Xid xid = FIRST_XID; xid < next_xid(); xid++) {
    Xact &one = at(xid);
    if (one.parent != NO_XID)
      continue;
    if (one.state == XactState::RUNNING && !one.prepared)
      abort(xid);
    else if (one.state == XactState::COMMITTED && one.lsn > flushed_)
      one.state = XactState::ABORTED;
  }
  lsn_ = flushed_;
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

void Table::note_special(int64_t position, const Version &version) {
  if (version.failed || version.available_at != dispatch::WALL_TIME_BEGIN || version.blocked_by != 0 ||
      version.tried_at != dispatch::WALL_TIME_NEVER || version.redrive != Redrive::NOT)
    special_.insert(position);
}

void Table::insert(int64_t position, Version version, Xid xid) {
  version.xmin = xid;
  version.xmax = NO_XID;
  if (!version.failed) {
    version.xact = top(xid);
    by_xact_[version.xact - FIRST_XID].push_back(position);
  }
  rows_[position].versions.push_back(version);
  note_special(position, version);
  first_alive_ = std::min(first_alive_, position);
}

/* The line of the version that was not replaced by anything but an aborted transaction; -1 = none. */
int Table::current(int64_t position) const {
  const std::vector<Version> &versions = rows_[position].versions;
  for (int line = static_cast<int>(versions.size()) - 1; line >= 0; line--) {
    const Version &version = versions[line];
    const bool exists = is_committed(version.xmin) || is_running(version.xmin);
    const bool replaced = version.xmax != NO_XID && is_committed(version.xmax);
    if (exists && !replaced)
      return line;
    if (exists && replaced)
      return -1;
  }
  return -1;
}

bool Table::may_write(const Row &row, int line, Xid xid) const {
  const Version &version = row.versions[line];
  const auto other = [this, xid](Xid holder) { return is_running(holder) && top(holder) != top(xid); };
  return !other(version.xmin) && !other(version.xmax) && !other(row.locker);
}

Version *Table::update(int64_t position, Xid xid) {
  Row &row = rows_[position];
  const int line = current(position);
  if (line < 0 || !may_write(row, line, xid) || is_running(row.versions[line].xmax))
    return nullptr;
  row.versions[line].xmax = xid;
  Version next = row.versions[line];
  next.xmin = xid;
  next.xmax = NO_XID;
  row.versions.push_back(next);
  special_.insert(position);
  return &row.versions.back();
}

bool Table::remove(int64_t position, Xid xid) {
  Row &row = rows_[position];
  const int line = current(position);
  if (line < 0 || !may_write(row, line, xid) || is_running(row.versions[line].xmax))
    return false;
  row.versions[line].xmax = xid;
  return true;
}

bool Table::lock(int64_t position, Xid xid) {
  Row &row = rows_[position];
  const int line = current(position);
  if (line < 0 || !is_committed(row.versions[line].xmin) || !may_write(row, line, xid))
    return false;
  row.locker = xid;
  return true;
}

Found Table::find(int64_t position, const Snapshot &snapshot) const {
  const std::vector<Version> &versions = rows_[position].versions;
  for (int line = static_cast<int>(versions.size()) - 1; line >= 0; line--)
    if (sees(snapshot, versions[line].xmin, versions[line].xmax))
      return {position, static_cast<uint16_t>(line), &versions[line]};
  return {position, 0, nullptr};
}

bool Table::is_unmodified(int64_t position, uint16_t line) const {
  const Row &row = rows_[position];
  return line < row.versions.size() && !row.versions[line].failed && row.versions[line].xmax == NO_XID &&
         !is_running(row.locker);
}

LockResult Table::lock_row(int64_t position, uint16_t *line, Xid xid, bool follow) {
  const auto lock_at = [&](const Found &found) {
    Row &row = rows_[position];
    if (found.version == nullptr || found.version->failed || current(position) != found.line ||
        !may_write(row, found.line, xid))
      return false;
    row.locker = xid;
    *line = found.line;
    return true;
  };
  const Found found = find(position, snapshot(xid));
  if (found.version && found.line == *line && lock_at(found))
    return LockResult::LOCKED;
  if (found.version == nullptr || found.version->failed)
    return LockResult::GONE;
  return follow && lock_at(found) ? LockResult::LOCKED : LockResult::BUSY;
}

std::vector<int64_t> Table::rows_of(Xid xact) const {
  std::vector<int64_t> positions = by_xact_[xact - FIRST_XID];
  std::sort(positions.begin(), positions.end());
  return positions;
}

void Table::vacuum() {
  const auto is_dead = [this](int64_t position) {
    for (const Version &version : rows_[position].versions)
      if (is_running(version.xmin) || (is_committed(version.xmin) && version.xmax == NO_XID) ||
          (is_committed(version.xmin) && !(is_committed(version.xmax) && lsn_of(version.xmax) <= flushed_)))
        return false;
    return true;
  };
  while (first_alive_ <= last_position() && !rows_[first_alive_].versions.empty() && is_dead(first_alive_))
    first_alive_++;
  std::erase_if(special_, is_dead);
  std::erase_if(queue, [this](const QueueEntry &entry) {
    return !is_running(entry.xmin) &&
           (!is_committed(entry.xmin) ||
            (entry.xmax != NO_XID && is_committed(entry.xmax) && lsn_of(entry.xmax) <= flushed_));
  });
}

}  // namespace simulate
