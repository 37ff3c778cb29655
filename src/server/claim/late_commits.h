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
/* The next round compares its snapshot with this one. */
void late_commits_note_running(Snapshot snapshot);

/* Rows of late transactions wait to be claimed, and none of them must be routed first that another session has
 * locked. */
struct WorkerSink;
bool late_commits_can_go_on(const struct WorkerSink *sink);

/* The id of a transaction that runs or has just ended, with its epoch. */
uint64 late_commits_full_xid(TransactionId xid);
