/*
 * late_commits.h: transactions that drew positions before others that are already claimed, and commit after them.
 * They are looked up by transaction, never searched for: what was in progress in the last round's snapshot and is not
 * in this one's has ended meanwhile. This needs two things of the producer: a transaction id before the first
 * position, a sequence with CACHE 1.
 */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "utils/snapshot.h"
}

/* Compares the snapshot with that of the last round and notes in every sink the transactions that ended meanwhile
 * and left rows at or below its cursor. In SPI. */
void late_commits_find(Snapshot snapshot);

/* Its two halves. The transactions that have ended since, as an array of xid8; and what is compared the next time. */
Datum late_commits_ended(Snapshot snapshot, int *n);
void late_commits_note_running(Snapshot snapshot);

/* Late rows wait to be claimed, and not for one of them that somebody has locked before it could be routed. */
struct WorkerSink;
bool late_commits_can_go_on(const struct WorkerSink *sink);

/* With its epoch: a running or just ended transaction is never more than 2^31 behind the next one. */
uint64 late_commits_full_xid(TransactionId xid);
