/*
 * locked_rows.h: the rows that could not be claimed or marked: another session had locked them, or they are no
 * longer the blocker of their key. Each is read again after a pause of 200 ms plus 50 ms per 500 rows
 * in the list, at the next whole 50 ms. Until then its key does not drain beyond it.
 */
#pragma once

#include <cstddef>

#include "dispatch/memory.h"
#include "dispatch/time.h"
#include "dispatch/types.h"

namespace dispatch {

struct LockedRow {
  int64_t position;
  uint64_t key_hash; /* 0 = the row has no key */
  SinkId sink;
  bool listed; /* in looked_: the row is back in rows_ */
  Moment look_at;
};

class LockedRows {
public:
  /* The pauses of rows that this round adds start at `now`. */
  void begin_round(Moment now) noexcept;
  void commit_round() noexcept;
  /* Puts the rows that the round looked at back into the list. */
  void roll_back_round() noexcept;

  void add(int64_t position, SinkId sink, uint64_t key_hash) noexcept;
  bool has(int64_t position) const noexcept;

  /* Moves the due rows from the list to the round: look_count() of them, to be looked at now. */
  void take_due() noexcept;
  int look_count() const noexcept { return static_cast<int>(looked_.size()); }
  const LockedRow &looked(int i) const noexcept { return looked_[i]; }
  /* There was no free space for that row: it goes back into the list, with the sink and key that it has now. Its
   * former key drains without it. */
  void keep(int i, SinkId sink, uint64_t key_hash) noexcept;

  /* The lowest position of this key; POSITION_NONE when the list has none. */
  int64_t first_of_key(SinkId sink, uint64_t key_hash) const noexcept;
  /* The lowest position of all; POSITION_NONE when the list is empty. */
  int64_t first() const noexcept;
  /* The limit is reached: the main scan must stop. */
  bool full() const noexcept;
  /* When the next row is due; MOMENT_NEVER = the list is empty. */
  Moment next_moment() const noexcept;

private:
  bool is_due(const LockedRow &row) const noexcept { return row.look_at <= round_began_; }
  void put_back(int i) noexcept;

  Vector<LockedRow> rows_, looked_;
  Moment round_began_ = MOMENT_NONE;
};

}  // namespace dispatch
