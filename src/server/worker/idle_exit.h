/*
 * idle_exit.h: a worker that has nothing to do ends, and leaves its slot (dispatch/idle_exit.h says when). All
 * workers of a database end together, if nothing was committed meanwhile.
 */
#pragma once

#include "server/base/clock.h"

/* After each loop: `quiet` says that only what has its own time is left to do. True when the worker must end. */
bool should_exit_idle(Now now, bool quiet);

/* When to ask again, if nothing happens; MOMENT_NEVER = not by itself. */
Moment idle_exit_next_moment(Moment now);
