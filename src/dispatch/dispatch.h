/*
 * dispatch.h: all state of the decisions of one worker, in one object: each part is a class of its own, with a header
 * and unit tests of its own. The server makes the object when a worker starts, keeps a pointer for the life of the
 * process and calls its parts; it never constructs, copies or destroys one, since longjmp skips destructors.
 */
#pragma once

#include "dispatch/blocked_keys.h"
#include "dispatch/idle_exit.h"
#include "dispatch/in_flight.h"
#include "dispatch/late_commits.h"
#include "dispatch/linger.h"
#include "dispatch/locked_rows.h"
#include "dispatch/shards.h"

namespace dispatch {

struct Dispatch {
  BlockedKeys blocked_keys;
  IdleExit idle_exit;
  InFlight in_flight;
  LateCommits late_commits;
  Linger linger;
  LockedRows locked_rows;
  Shards shards;

  /* A round of claiming: what it changed in the parts stays after commit_round(), when its transaction has committed,
   * and is taken back by roll_back_round(). */
  void begin_round(Moment now) noexcept;
  void commit_round() noexcept;
  void roll_back_round() noexcept;
};

/* NULL: out of memory. */
Dispatch *create() noexcept;

}  // namespace dispatch
