/* worker.h: the process that delivers one database's events. */
#pragma once

#include "server/base/server.h"

/* What the launcher tells a worker, in bgw_extra. */
typedef struct WorkerArguments {
  Oid database;
  int index; /* of the database's workers, from 0 */
} WorkerArguments;

extern "C" PGDLLEXPORT void outbox_worker_main(Datum argument);

/* First thing in each of the worker's transactions. Takes a lock that DROP EXTENSION waits for, so that no table goes
 * away under our statements; ends the process when the extension has gone. */
void worker_stay_with_extension(void);
