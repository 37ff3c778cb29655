/*
 * record.h: records how events ended: delivered rows are deleted (or move to SENT), failed ones get the time of their
 * next attempt, dead letters move to FAILED. A row that a user has locked is recorded later; it is never sent again.
 */
#pragma once

#include "server/base/clock.h"

/* In a transaction. After it: record_committed() or record_rolled_back(). */
void record_ended(Now now);

/* After the commit: counters, and the events are over. */
void record_committed(Now now);

/* `error`: why the transaction failed, if that may be because of the rows that it recorded; else NULL. True when a
 * smaller batch should be tried at once. */
bool record_rolled_back(Now now, const char *error);
