/* round.h: what the running round of claiming may still take, and what it has taken. */
#pragma once

#include "dispatch/time.h"

namespace dispatch {

struct Round {
  bool open; /* there are changes that a rollback must undo */
  Now now;
  int free_events;    /* how many more events the worker takes, by number … */
  int64_t free_bytes; /* … and by memory in bytes */
  int n_claimed;
  bool dropped;   /* some claimed events were dropped, so the limits allow more */
  bool reordered; /* a redriven row became a blocker, and later rows of its key may be in the batches */
  bool unmarked;  /* it removes marks */
};

}  // namespace dispatch
