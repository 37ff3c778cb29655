/*
 * table.h: outbox.events in memory, with PostgreSQL's rules of visibility: row versions, transaction ids, snapshots,
 * row locks, and a log of which only a part is flushed. It stands for heap, commit log and WAL.
 */
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "dispatch/time.h"
#include "dispatch/types.h"

namespace simulate {

using dispatch::SinkId;
using dispatch::WallTime;
using Xid = uint64_t; /* with its epoch */

inline constexpr Xid NO_XID = 0;
inline constexpr Xid FIRST_XID = (Xid{1} << 32) - 200; /* an epoch ends soon */

enum class XactState : uint8_t { NONE, RUNNING, COMMITTED, ABORTED };

struct Xact {
  XactState state = XactState::NONE;
  bool prepared = false;
  Xid parent = NO_XID;       /* of a subtransaction */
  uint64_t lsn = 0;          /* of its commit record */
  uint64_t committed_at = 0; /* Table::steps() */
};

struct Snapshot {
  std::vector<Xid> running; /* no subtransactions */
  Xid xmax = 0, next = 0, xmin = 0;
  Xid own = NO_XID; /* the reader's own transaction */
};

enum class Redrive : uint8_t { NOT, IN_ORDER, LATE };

/* One version of a row. */
struct Version {
  Xid xmin = NO_XID, xmax = NO_XID;
  Xid xact = NO_XID; /* the column: the transaction that wrote the row as pending */
  SinkId sink = 0;
  bool failed = false; /* it stands in events_failed */
  Redrive redrive = Redrive::NOT;
  int32_t attempts = 0;
  uint64_t key_hash = 0;
  WallTime available_at = dispatch::WALL_TIME_BEGIN; /* that = NULL */
  int64_t blocked_by = 0, overtaken_by = 0;
  WallTime tried_at = dispatch::WALL_TIME_NEVER;
  const char *error = nullptr; /* a literal: rows outlive the events that failed */
};

struct Row {
  std::vector<Version> versions;
  Xid locker = NO_XID;
};

/* A version and its place. */
struct Found {
  int64_t position = 0;
  uint16_t line = 0;
  const Version *version = nullptr;
};

enum class LockResult : uint8_t { LOCKED, BUSY, GONE };

struct QueueEntry {
  int64_t position;
  Xid xact;
  Xid xmin, xmax;
};

class Table {
public:
  Table();

  /* ---- transactions ---- */
  Xid begin();
  Xid begin_sub(Xid parent);
  void abort(Xid xid);
  void prepare(Xid xid) { at(xid).prepared = true; }
  /* `flush`: the commit is synchronous. */
  uint64_t commit(Xid xid, bool flush);
  bool is_running(Xid xid) const;
  bool is_committed(Xid xid) const;
  const Xact &xact(Xid xid) const { return xacts_[xid - FIRST_XID]; }
  uint64_t lsn_of(Xid xid) const { return xact(top(xid)).lsn; }
  Xid top(Xid xid) const { return xact(xid).parent != NO_XID ? xact(xid).parent : xid; }
  Snapshot snapshot(Xid own) const;
  Xid next_xid() const { return FIRST_XID + xacts_.size(); }

  uint64_t flushed() const { return flushed_; }
  uint64_t end_of_log() const { return lsn_; }
  void flush(uint64_t lsn) { flushed_ = std::max(flushed_, std::min(lsn, lsn_)); }
  /* The server dies: commits that are not flushed never were, and what ran is aborted unless it was prepared. */
  void crash();

  /* ---- rows ---- */
  int64_t draw_position() {
    rows_.emplace_back();
    return last_position();
  }
  int64_t last_position() const { return static_cast<int64_t>(rows_.size()) - 1; }
  void insert(int64_t position, Version version, Xid xid);
  /* The new version of a row that this transaction may write; nullptr when another one has it. */
  Version *update(int64_t position, Xid xid);
  bool remove(int64_t position, Xid xid);
  bool lock(int64_t position, Xid xid);

  /* The version that the snapshot sees; version = nullptr: none. */
  Found find(int64_t position, const Snapshot &snapshot) const;
  /* Row locks of the worker (row_lock.cpp): the version that was read, or with `follow` the present one. */
  LockResult lock_row(int64_t position, uint16_t *line, Xid xid, bool follow);
  /* unmodified_rows.cpp */
  bool is_unmodified(int64_t position, uint16_t line) const;
  Version &version(int64_t position, uint16_t line) { return rows_[position].versions[line]; }

  /* Rows that the scans by index find: with a time, a mark, a failure, a redrive, or in events_failed. */
  const std::set<int64_t> &special() const { return special_; }
  /* The rows that a transaction wrote as pending, by position. */
  std::vector<int64_t> rows_of(Xid xact) const;
  int64_t first_alive() const { return first_alive_; }
  /* Forgets what nobody can see any more. */
  void vacuum();

  std::vector<QueueEntry> queue; /* outbox_internal.rescan_queue */
  void queue_rescan(int64_t position, Xid xid) { queue.push_back({position, top(xid), xid, NO_XID}); }
  bool sees(const Snapshot &snapshot, Xid xmin, Xid xmax) const {
    return sees(snapshot, xmin) && !(xmax != NO_XID && sees(snapshot, xmax));
  }

  uint64_t step() { return ++steps_; }
  uint64_t steps() const { return steps_; }

private:
  Xact &at(Xid xid) { return xacts_[xid - FIRST_XID]; }
  Xid add(Xid parent);
  void end(Xid xid, XactState state);
  bool sees(const Snapshot &snapshot, Xid xid) const;
  int current(int64_t position) const;
  bool may_write(const Row &row, int line, Xid xid) const;
  void note_special(int64_t position, const Version &version);

  std::vector<Xact> xacts_;
  std::vector<Xid> running_;
  Xid latest_completed_ = FIRST_XID - 1;
  uint64_t lsn_ = 1, flushed_ = 1, steps_ = 0;
  std::vector<Row> rows_;
  std::set<int64_t> special_;
  std::vector<std::vector<int64_t>> by_xact_;
  int64_t first_alive_ = 1;
};

}  // namespace simulate
