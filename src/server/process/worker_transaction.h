/* worker_transaction.h: runs a task other than recording and claiming in a transaction of its own. */
#pragma once

#include "server/base/server.h"

/* Runs the utility statement `first` (may be NULL) and then `body`, with SPI connected. Returns false after an error,
 * which is logged. In the worker, outside a transaction. */
bool worker_transaction(const char *first, void (*body)(void *), void *argument);
