/* unrouted.h: handles unrouted events that claims find. */
#pragma once

#include "server/event/event_row.h"

/* Checks whether the routes have changed; if so, unrouted events are to be routed. In a transaction. */
void unrouted_look_at_routes(void);

/* A claim has found an unrouted event. True when a sink takes it now: the event is to be routed, and the cursors of
 * the sinks that take it wait for that (unrouted_at()). */
bool unrouted_saw(const EventRow *row);

/* Are unrouted events to be routed? */
bool unrouted_wanted(void);

/* After routing: `done` = no error, `more` = other events may still be unrouted. */
void unrouted_routed(bool done, bool more);

/* While this is true no sink is opened, because unrouted events are routed first, in order. After an error sinks are
 * opened, so that those that take no unrouted event go on. */
bool unrouted_routing(void);

/* Is the unrouted event at this position locked, or has routing failed? Then it is not routed at once. False for 0.
 */
bool unrouted_is_stuck(int64 position);
