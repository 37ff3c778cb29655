/* wake.h: a commit wakes the worker of its database. */
#pragma once

#include "server/base/server.h"

/* Registers the transaction callbacks, once per backend. Called from _PG_init. */
void wake_init(void);

/* Makes the commit of the current transaction wake this database's workers. It sets a flag, so it may be called for
 * each row. A rolled back subtransaction leaves the flag set: a needless wake-up is harmless. */
void wake_at_commit(void);

/* Makes the commit of the current transaction wake this database's workers, which then read
 * outbox_internal.rescan_queue. */
void request_rescan_at_commit(void);

/* Makes the commit of the current transaction tell the launcher that this database has the extension. */
void wake_launcher_at_commit(void);

/* Wakes this database's workers now, and asks the launcher to start them if they are idle. Takes no lock and
 * allocates nothing. The library must be preloaded. */
void wake_workers(void);

/* A sink was created, changed or dropped: wakes the workers after the commit has sent its invalidations. */
void wake_when_sinks_changed(void);
