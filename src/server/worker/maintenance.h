/*
 * maintenance.h: the worker's tasks besides delivery: routing unrouted events, creating and dropping daily partitions
 * of events_sent, deleting expired dedup keys and processed events, telling operators what is wrong with a sink. Each
 * of these runs in a transaction of its own; an error is logged and the task is tried again, while delivery goes on.
 * It also looks for new libraries of kinds of sink.
 */
#pragma once

#include "server/base/clock.h"

/* Runs the tasks that are due. Every worker routes; the first worker of the database does the rest. Outside a
 * transaction. */
void maintenance_run(Moment now, bool first_worker);

/* The sinks have changed: another one may ask for operator events. */
void maintenance_sinks_changed(void);

/* The daily partition for a delivered event is missing: runs that task at the next call. */
void maintenance_day_missing(void);

/* Has a file of another build taken the place of a library of a kind of sink? Then this worker must end, and the next
 * one loads it. Looks every 10 s. */
bool maintenance_library_replaced(Moment now);

/* When the next task is due. */
Moment maintenance_next_moment(void);
