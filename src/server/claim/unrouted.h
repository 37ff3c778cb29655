/* unrouted.h: events that wait for a sink, as the claims see them. */
#pragma once

#include "server/event/event_row.h"

/* When routes have changed, events that waited may have a way now. */
void unrouted_look_at_routes(void);

/* A claim came across an event that waits. True when a sink takes it now: it is about to be routed, and its position
 * is the unrouted_at() of the cursors of those that take it. */
bool unrouted_saw(const EventRow *row);

/* Events that wait are to be routed. */
bool unrouted_wanted(void);

/* That was tried: `done` = no error, `more` = others may still wait. */
void unrouted_routed(bool done, bool more);

/* While this holds no sink is opened: what waited for it comes first, in its order. */
bool unrouted_routing(void);
