/*
 * standby.h: with synchronous_standby_names set, WAL that only this server has flushed may vanish in a failover. A
 * commit can be visible here without its standby: under synchronous_commit = local or off, and when its wait was
 * cancelled. So the server's own count of what the standbys have confirmed decides, not the commit.
 */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "access/xlogdefs.h"
}

/* At the worker's start and after a reload: the server's synchronous_commit says what a confirmation is. */
void standby_reread(void);

/* Are there standbys to wait for? By synchronous_standby_names and outbox.wait_for_standbys. */
bool standby_required(void);

/* After durable_flush(): every transaction that a snapshot of ours has seen ends below this, and it is flushed here,
 * so that it is on its way without anybody's doing. */
XLogRecPtr standby_target(void);

/* Have the synchronous standbys confirmed WAL up to here? Never waits. */
bool standby_has(XLogRecPtr lsn);

/* WAL up to here outlives a crash and, where standbys are required, a failover to one of them. */
XLogRecPtr standby_safe(void);
