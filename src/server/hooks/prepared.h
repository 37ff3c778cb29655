/* prepared.h: COMMIT PREPARED runs in another session, maybe after a restart: the marks of the one that wrote are
 * gone. */
#pragma once

#include "server/base/server.h"

/* Registers the hook, once per backend. Called from _PG_init. */
void prepared_init(void);
