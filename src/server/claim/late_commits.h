/* late_commits.h: looks up the rows of transactions that committed late (dispatch/late_commits.h). */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "utils/snapshot.h"
}

/* Compares the snapshot with that of the last round, and notes for each sink the transactions that have ended since
 * and left rows at or below its cursor. In SPI. */
void late_commits_find(Snapshot snapshot);

/* The transactions that have ended since the last round, as an array of xid8. */
Datum late_commits_ended(Snapshot snapshot, int *n);
/* Keeps the snapshot for the comparison of the next round. */
void late_commits_note_running(Snapshot snapshot);

/* Can rows of late transactions be claimed now? Not while they wait for the routing of an event that another session
 * has locked. */
struct WorkerSink;
bool late_commits_can_go_on(const struct WorkerSink *sink);

/* The ID with epoch of a transaction that runs or has just ended. */
uint64 late_commits_full_xid(TransactionId xid);
