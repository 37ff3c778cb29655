/* worker.h: the process that delivers one database's events. */
#pragma once

#include "server.h"

/* What the launcher tells a worker, in bgw_extra. */
typedef struct WorkerArguments {
  Oid database;
  int index; /* of `count` */
  int count;
} WorkerArguments;

extern "C" PGDLLEXPORT void outbox_worker_main(Datum argument);
