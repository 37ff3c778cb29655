/*
 * maintenance.h: what the worker does now and then besides delivering: routes events that waited for a sink, makes
 * and drops the days of SENT, forgets expired dedup keys. Each in a transaction of its own; a failure is logged and
 * tried again, and never stops delivery.
 */
#pragma once

#include "server.h"

extern "C" {
#include "utils/timestamp.h"
}

/* Sinks have changed: events that waited may have a way now. */
void maintenance_routes_changed(void);

/* Does what is due. Only the first worker of a database does anything. */
void maintenance_run(TimestampTz now, bool first_worker);

TimestampTz maintenance_next_moment(void);
