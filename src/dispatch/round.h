/* round.h: what the running round of claiming may still take, and what it has taken. */
#pragma once

#include "dispatch/time.h"

namespace dispatch {

struct Round {
  bool open; /* something of it may have to be taken back */
  Now now;
  int free_events;    /* how many more the worker takes, by number and … */
  int64_t free_bytes; /* … by memory */
  int n_claimed;
  bool dropped;   /* events that were claimed and then not kept have left room */
  bool reordered; /* a redriven row takes the lead of a key of which later rows may be in the batches */
};

}  // namespace dispatch
