/* dispatcher.h: gives the worker's folders access to its one dispatch::Dispatch object (src/dispatch). */
#pragma once

#include "server/base/server.h"

#include "dispatch/dispatch.h"

/* Once, when the worker starts. */
void dispatcher_init(void);

/* The object, after dispatcher_init(). It lives until the process ends. */
dispatch::Dispatch &dispatcher(void);
