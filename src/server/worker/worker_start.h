/* worker_start.h: starts and stops a worker's process. */
#pragma once

#include "server/process/worker_slot.h"

#include "delivery/delivery.h"

/* Connects to the database, takes the slot and starts the delivery library. Exits the process when another one has
 * the slot, or the database does not have the extension in the library's version. */
ob_engines *worker_start(const WorkerArguments *arguments);

/* The name of this worker's database; empty before worker_start() has read it. A rename needs a database without
 * sessions, so the worker exits before it. */
const char *worker_database(void);

/* Stops the delivery library's threads, within outbox.shutdown_timeout. */
void worker_stop(void);
