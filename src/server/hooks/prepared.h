/* prepared.h: wakes the workers after COMMIT PREPARED. It may run in another session or after a restart, where the
 * flags of the transaction that wrote are lost. */
#pragma once

#include "server/base/server.h"

/* Registers the hook, once per backend. Called from _PG_init. */
void prepared_init(void);
