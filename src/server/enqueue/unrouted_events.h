/*
 * unrouted_events.h: events that no sink takes are pending without a sink. An event that a sink takes by now, but
 * that was locked when it should be routed, is noted by position, so that only noted events are tried again.
 */
#pragma once

#include "server/base/server.h"

/* The number of locked events that the last outbox_internal.route_waiting() of this process has noted, at most 1,000.
 * At 1,000 there may be more. */
int unrouted_locked(void);

/* Is the event at this position among the noted ones? */
bool unrouted_is_locked(int64 position);

/* Workers route one after the other: when a worker finds no event left to route, no other one is routing. Returns
 * false when another worker is at it. The lock is none of a table: VACUUM, REINDEX CONCURRENTLY and the like, which
 * may last for hours, must not stop the routing. It ends with the transaction. */
bool unrouted_lock_routing(void);

/* Routes the noted events that are no longer locked. Returns true when events beyond the noted ones may wait. In SPI.
 */
bool unrouted_route_locked(void);
