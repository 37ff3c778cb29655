/* day_partition.h: can delivered events that are to be kept be kept today? (dispatch/sent_day.h) */
#pragma once

#include "server/base/clock.h"

#include "dispatch/sent_day.h"

/* Is there a partition for what is delivered at this time? In a transaction. */
bool sent_day_exists(TimestampTz time);

/* A transaction that records begins. */
void sent_day_begin(void);

/* Of events that their sink keeps. In a transaction. Warns once an hour when they are deleted instead. */
dispatch::Retention sent_day_retention(Now now);
