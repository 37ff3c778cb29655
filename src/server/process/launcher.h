/* launcher.h: the one process that starts and restarts the workers of every database. */
#pragma once

#include "server/base/server.h"

void launcher_register(void);
