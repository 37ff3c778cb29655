/* launcher.h: the one process that starts and restarts the workers of every database. */
#pragma once

#include "server/base/server.h"

/* Registers the launcher. From _PG_init, while shared_preload_libraries are loaded. */
void launcher_register(void);
