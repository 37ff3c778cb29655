/*
 * record.h: records how events ended: delivered rows are deleted (or move to SENT), failed ones get the time of their
 * next attempt, dead letters move to FAILED. A row that a user has locked is recorded later; it is never sent again.
 */
#pragma once

#include "server/base/clock.h"

/* In a transaction. After it: record_committed() or record_rolled_back(). */
void record_ended(Now now);

/* After the commit: counts the recorded events and gives up their entries. True when a sink may claim more, as fewer
 * of its events are left unrecorded than before. */
bool record_committed(Now now);

/* `error`: why the recording failed; NULL if something else has failed beside it. `of_rows`: the rows that it
 * recorded may be the reason. True when others should be tried at once. */
bool record_rolled_back(Now now, const char *error, bool of_rows);
