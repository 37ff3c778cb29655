/* worker_extension.h: a worker stays in its database for as long as the extension is there, in the library's version.
 */
#pragma once

#include "server/base/server.h"

/* At the worker's start, outside a transaction: ends the process when there is nothing to do here. */
void worker_find_extension(void);

/* First thing in each of the worker's transactions. Takes a lock that DROP EXTENSION waits for, so that no table goes
 * away under our statements; ends the process when the extension has gone. */
void worker_lock_extension(void);
