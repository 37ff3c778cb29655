/*
 * maintenance.h: what the worker does now and then besides delivering: routes events that waited for a sink, makes
 * and drops the days of SENT, forgets expired dedup keys. Each in a transaction of its own; a failure is logged and
 * tried again, and never stops delivery.
 */
#pragma once

#include "server/base/clock.h"

/* When routes have changed, events that waited may have a way now. */
void maintenance_look_at_routes(void);

/* A claim came across an event that waits. True when a sink takes it now: it is about to be routed, and its position
 * is the `unrouted_at` of those that take it. */
struct EventRow;
bool maintenance_saw_unrouted(const struct EventRow *row);

/* Events that somebody has locked are to be routed as soon as they are free. */
bool maintenance_waits_for_locks(void);

/* While this holds no sink is opened: what waited for it comes first, in its order. */
bool maintenance_routing(void);

/* Does what is due. Every worker routes; the rest is the first one's. */
void maintenance_run(Moment now, bool first_worker);

/* A delivered event has no partition to go to. */
void maintenance_day_missing(void);

Moment maintenance_next_moment(void);
