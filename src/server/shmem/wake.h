/* wake.h: a commit wakes the worker of its database. */
#pragma once

#include "server/base/server.h"

/* Registers the transaction callbacks, once per backend. Called from _PG_init. */
void wake_init(void);

/* Marks the current transaction: when it commits, this database's workers are woken. Cheap; call as often as rows
 * are written. A subtransaction that rolls back may leave the mark: a needless wake-up is harmless. */
void wake_at_commit(void);

/* Likewise, and the worker will read outbox_internal.rescan_queue. */
void request_rescan_at_commit(void);

/* This database has the extension: the launcher is told when the transaction commits. */
void wake_launcher_at_commit(void);

/* At once, outside of any commit: this database's workers look around, also if they are at rest. */
void wake_workers(void);

/* A sink was made, changed or dropped: wakes the workers once the commit and its invalidations are out. */
void wake_when_sinks_changed(void);
