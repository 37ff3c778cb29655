/*
 * worker_port.h: this server as the port of a worker's loop (dispatch/round/loop_port.h), and that loop. Main thread
 * of the worker.
 */
#pragma once

#include "server/base/clock.h"

#include "dispatch/round/loop.h"

/* Once, before the other functions: the loop's memory. After dispatcher_init(). */
void worker_port_init(void);

/* The loop of this worker. It lives until the process ends. */
dispatch::Loop &worker_loop(void);

/* Reads the catalog, and with `first` also what claims start from. Returns false after an error, such as another
 * session's lock. Outside a transaction. */
bool worker_read_catalog(bool first);
