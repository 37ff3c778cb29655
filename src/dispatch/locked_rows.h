/*
 * locked_rows.h: the rows that could not be claimed or marked yet: another session had locked them, or they no longer
 * lead their key, or the process had no memory for them. Each is looked at again after a pause of 200 ms, and longer
 * the more there are. Until then its key drains no farther.
 */
#pragma once

#include <cstddef>
#include <vector>

#include "dispatch/time.h"
#include "dispatch/types.h"

namespace dispatch {

struct LockedRow {
  int64_t position;
  uint64_t key_hash; /* 0 = no key waits for it */
  SinkId sink;
  bool listed; /* of a row that is being looked at: it is in the list again */
  Moment look_at;
};

class LockedRows {
public:
  /* The pauses of the rows that are added in this round count from here. */
  void begin_round(Moment now) noexcept;
  void commit_round() noexcept;
  /* Rows that the round looked at are looked at again. Never out of memory. */
  void roll_back_round() noexcept;

  /* False: out of memory. */
  bool add(int64_t position, SinkId sink, uint64_t key_hash) noexcept;

  /* Takes the rows whose time has come off the list: look_count() of them, to be looked at in this round. False: out
   * of memory. */
  bool take_due() noexcept;
  int look_count() const noexcept { return static_cast<int>(looked_.size()); }
  const LockedRow &looked(int i) const noexcept { return looked_[i]; }
  /* That row had no room in its sink: it is looked at again. Never out of memory. */
  void keep(int i) noexcept;

  /* The first position of this key; POSITION_NONE when there is none. */
  int64_t first_of_key(SinkId sink, uint64_t key_hash) const noexcept;
  /* The first one of all; POSITION_NONE when there is none. */
  int64_t first() const noexcept;
  /* There are so many that no new ones should be looked for. */
  bool full() const noexcept;
  /* When to look again; MOMENT_NEVER = there are none. */
  Moment next_moment() const noexcept;

private:
  void reserve(std::size_t more);
  void append(int64_t position, SinkId sink, uint64_t key_hash) noexcept;

  std::vector<LockedRow> rows_, looked_; /* rows_ has room for looked_ as well */
  Moment round_began_ = MOMENT_NONE;
};

}  // namespace dispatch
