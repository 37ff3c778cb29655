/*
 * exit_when_idle.h: an idle worker exits and frees its background worker slot (dispatch/idle_exit.h decides when).
 * All workers of a database exit together, if no commit came meanwhile.
 */
#pragma once

#include "server/base/clock.h"

/* After each loop. `quiet` says that the worker has only scheduled work left. Returns true when the worker must exit.
 */
bool should_exit_idle(Now now, bool quiet);

/* When to call should_exit_idle() again if nothing else happens; MOMENT_NEVER = no such moment. */
Moment idle_exit_next_moment(Moment now);
