/*
 * standby.h: with synchronous_standby_names set, a failover loses WAL that only this server has flushed. A commit can
 * be visible here before a standby has it: under synchronous_commit = local or off, and when its wait was cancelled.
 * So a visible commit proves nothing; the LSN that the standbys have confirmed decides.
 */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "access/xlogdefs.h"
}

/* Reads from the server's synchronous_commit whether a standby confirms WAL when it is written or when it is flushed.
 * At the worker's start and after a reload. */
void standby_reread(void);

/* Must events wait for standbys, by synchronous_standby_names and outbox.wait_for_standbys? */
bool standby_required(void);

/* The LSN that standbys must confirm before claimed events are sent; call it after durable_flush(). All transactions
 * that the worker's snapshots have seen end before it. It is flushed here, so the WAL senders send it without a
 * further request. */
XLogRecPtr standby_target(void);

/* Have the synchronous standbys confirmed WAL up to this LSN? Does not wait for them. */
bool standby_has(XLogRecPtr lsn);

/* Returns the LSN up to which WAL survives a crash and, where standbys are required, a failover to one of them. */
XLogRecPtr standby_safe(void);
