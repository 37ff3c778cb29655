/* worker_transaction.h: what the worker does now and then besides delivering, each in a transaction of its own. */
#pragma once

#include "server/base/server.h"

/* Runs `first` (a statement such as SET LOCAL; may be NULL) and then the body, with SPI connected. False when it
 * failed, which is logged and stops nothing. */
bool worker_transaction(const char *first, void (*body)(void *), void *argument);
