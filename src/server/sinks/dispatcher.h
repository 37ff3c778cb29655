/* dispatcher.h: gives the worker's folders access to its one dispatch::Dispatch object (src/dispatch). */
#pragma once

#include "server/base/server.h"

#include "dispatch/dispatch.h"

/* Once, when the worker starts. Raises an error when out of memory. */
void dispatcher_init(void);

/* The object, after dispatcher_init(). It lives until the process ends. */
dispatch::Dispatch &dispatcher(void);

/* For functions of dispatch that return false when out of memory: raises the error ERRCODE_OUT_OF_MEMORY if `done` is
 * false. */
void require_memory(bool done);
