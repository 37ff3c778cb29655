/* worker_start.h: how a worker's process begins and ends. */
#pragma once

#include "server/process/worker_slot.h"

#include "delivery/delivery.h"

/* Connects to the database, takes the slot and starts the delivery library; does not return when there is nothing to
 * do here. */
ob_engine *worker_start(const WorkerArguments *arguments);

/* Ends the delivery library's threads, within outbox.shutdown_timeout. */
void worker_stop(void);
