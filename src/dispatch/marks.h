/*
 * marks.h: the rows that the running round marks in the table. A mark with the group of a blocked key makes the row
 * wait for the key's blocker; group 0 removes the mark. A marked row need not be kept in memory: the worker finds
 * it by the mark when the key drains.
 */
#pragma once

#include <span>

#include "dispatch/memory.h"
#include "dispatch/types.h"

namespace dispatch {

struct Mark {
  int64_t position;
  RowHandle row;
  int64_t group; /* 0 = removes the row's mark */
  SinkId sink;
  uint64_t key_hash;
  bool removes = false; /* the row has a mark, which is removed */
};

class Marks {
public:
  void commit_round() noexcept;
  void roll_back_round() noexcept;

  void add(const Mark &mark) noexcept;
  std::span<const Mark> all() const noexcept { return marks_; }
  /* A returned event's mark is of the sink and key that it had: a user may have changed its row since. */
  bool has(int64_t position, SinkId sink, uint64_t key_hash) const noexcept;

  /* Events that were returned unsent and whose key has been blocked since. The next round marks them, so that the
   * cursor need not go back over everything that was claimed after them. A round that is rolled back forgets them:
   * then the cursor must go back. */
  void add_returned(const Mark &mark) noexcept { returned_.push_back(mark); }
  std::span<const Mark> returned() const noexcept { return returned_; }
  /* The returned events that this round handles: all that were added before this call. */
  std::span<Mark> take_up_returned() noexcept;

private:
  Vector<Mark> marks_, returned_;
  std::size_t n_taken_up_ = 0;
};

}  // namespace dispatch
