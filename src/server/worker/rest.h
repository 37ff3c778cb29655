/*
 * rest.h: a database with nothing due holds no worker. A worker that has been idle for outbox.worker_idle_timeout, or
 * at all while other databases wait for a free slot, leaves; the launcher starts one when something is committed,
 * when the next event is due, and once an hour to be safe and to tidy up.
 */
#pragma once

#include "server/base/clock.h"

/* After each loop: `quiet` says that only what has its own time is left to do. True when the worker must end. */
bool rest_taken(Now now, bool quiet);

/* When to ask again, if nothing happens; MOMENT_NEVER = not by itself. */
Moment rest_next_moment(Moment now);
