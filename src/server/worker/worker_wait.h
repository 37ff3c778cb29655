/* worker_wait.h: the worker's sleep. */
#pragma once

#include "server/base/server.h"

/* Once, before worker_wait(). `engine_fd` is readable when the engine has completions. */
void worker_wait_init(int engine_fd);

/* Sleeps until the latch is set, the time is up or, with `listen_to_engine`, the engine has completions. `delivering`
 * (events are in flight) selects the wait event that pg_stat_activity shows. In the worker, outside a transaction. */
void worker_wait(long milliseconds, bool listen_to_engine, bool delivering);
