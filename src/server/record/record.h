/*
 * record.h: writes down how events ended: delivered rows leave (or move to SENT), failed ones get their next time,
 * dead ones move to FAILED. A row that a user holds is skipped and recorded later; it is never sent again.
 */
#pragma once

#include "server/base/clock.h"

/* In a transaction. Marks the events it recorded: in_flight_committed() after the commit, or aborted(). */
void record_ended(Now now);

/* The transaction failed in it. True when a smaller part should be tried at once: one row that cannot be written down
 * (a user's trigger or constraint) is found by halving, and then waits alone and ever longer. */
bool record_aborted(Now now, const char *error);

/* Such a row is not found yet, or waits. */
bool record_in_trouble(void);

/* After the commit: counters, and the keys that may go on. */
void record_committed(Now now);

/* Has a delivered event found no partition to go to? Told once. */
bool record_take_day_missing(void);
