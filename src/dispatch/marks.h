/*
 * marks.h: the rows that the running round marks in the table: each waits behind its key's blocker (its group is that
 * of the key), or waits no more (group 0). A mark lets the worker find the row when the key drains, and keeps it out
 * of memory until then.
 */
#pragma once

#include <span>
#include <vector>

#include "dispatch/types.h"

namespace dispatch {

struct Mark {
  int64_t position;
  RowHandle row;
  int64_t group; /* 0 = it waits no more */
  SinkId sink;
  uint64_t key_hash;
};

class Marks {
public:
  void begin_round() noexcept { marks_.clear(); }
  void commit_round() noexcept;
  void roll_back_round() noexcept;

  /* False: out of memory. */
  bool add(const Mark &mark) noexcept;
  std::span<const Mark> all() const noexcept { return marks_; }

  /* Events that came back unsent, and whose key is blocked since. The next round marks them, so that the cursor need
   * not go back for them, past all that was claimed meanwhile. A round that is rolled back forgets them: the cursor
   * must go back. False: out of memory. */
  bool add_returned(const Mark &mark) noexcept;
  std::span<const Mark> returned() const noexcept { return returned_; }
  /* The round deals with those that came back before it. */
  std::span<Mark> take_up_returned() noexcept;

private:
  std::vector<Mark> marks_, returned_;
  std::size_t n_taken_up_ = 0;
};

}  // namespace dispatch
