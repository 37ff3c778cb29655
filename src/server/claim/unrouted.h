/* unrouted.h: events that have no sink yet, when claims come across them. */
#pragma once

#include "server/event/event_row.h"

/* The routes may have changed: if so, unrouted events are to be routed. */
void unrouted_look_at_routes(void);

/* A claim came across an unrouted event. True when a sink takes it now: the event is to be routed, and the cursors of
 * the sinks that take it wait for that (unrouted_at()). */
bool unrouted_saw(const EventRow *row);

/* Unrouted events are to be routed. */
bool unrouted_wanted(void);

/* Routing was tried: `done` = no error, `more` = other events may still be unrouted. */
void unrouted_routed(bool done, bool more);

/* While this is true no sink is opened: the events that waited for it are routed first, in their order. */
bool unrouted_routing(void);
