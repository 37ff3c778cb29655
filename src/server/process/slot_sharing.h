/*
 * slot_sharing.h: more databases with work than background worker slots share them by turns. While a database waits
 * and none of its workers runs, those that have run longest, for a turn at least, give their slots up, busy or not,
 * and then wait like the others: each database gets its next turn before any gets a second one.
 */
#pragma once

#include "server/base/clock.h"

/* The launcher's: so many databases wait. `*sleep_ms` becomes how long it may sleep at most. */
void slot_sharing_revoke(int waiting, Moment now, long *sleep_ms);
