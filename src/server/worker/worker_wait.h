/* worker_wait.h: the one place where a worker sleeps. */
#pragma once

#include "server/base/server.h"

void worker_wait_init(int engine_fd);

/* Sleeps until the latch is set, the engine has something (unless told not to listen to it), or time is up.
 * `delivering`: events are in flight, and pg_stat_activity says so. */
void worker_wait(long milliseconds, bool listen_to_engine, bool delivering);
