/* worker_extension.h: keeps a worker running while its database has the extension in the library's version.
 */
#pragma once

#include "server/base/server.h"

/* At the worker's start, outside a transaction: exits the process when the database does not have the extension in
 * the library's version. */
void worker_find_extension(void);

/* At the start of each of the worker's transactions: takes a lock that DROP EXTENSION waits for, so that the tables
 * exist until the transaction ends. Exits the process when the extension was dropped or updated. */
void worker_lock_extension(void);
