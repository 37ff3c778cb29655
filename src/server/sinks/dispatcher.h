/* dispatcher.h: this worker's decisions (src/dispatch), within reach of all folders of the worker. */
#pragma once

#include "server/base/server.h"

#include "dispatch/dispatch.h"

/* Once, when the worker starts. */
void dispatcher_init(void);

/* Between dispatcher_init() and the end of the process. */
dispatch::Dispatch &dispatcher(void);

/* For a function of dispatch that returns false when it is out of memory: raises the error that palloc() would. */
void require_memory(bool done);
