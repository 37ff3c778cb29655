/*
 * maintenance.h: what the worker does now and then besides delivering: routes events that waited for a sink, makes
 * and drops the days of SENT, forgets expired dedup keys. Each in a transaction of its own; a failure is logged and
 * tried again, and never stops delivery.
 */
#pragma once

#include "server/base/clock.h"

/* Does what is due. Every worker routes; the rest is the first one's. */
void maintenance_run(Moment now, bool first_worker);

/* A delivered event has no partition to go to. */
void maintenance_day_missing(void);

Moment maintenance_next_moment(void);
