/* route_index.h: finds the sinks that want an event's headers by one look-up for each header, however many sinks
 * there are. */
#pragma once

#include "server/catalog/route.h"

/* Indexes the cache, in the current memory context; `sinks` stays where it is until the next call. */
void route_index(RouteSink *sinks, int n);

/* The sinks that take such an event, in that order; palloc'd. */
RouteSink **route_takers(const RouteEvent *event, int *n);

/* Does this one? */
bool route_takes(const RouteSink *sink, const RouteEvent *event);

/* Does one of the list match? */
bool route_globs_match(char *const *globs, const char *text);

/* Does any sink look at headers? */
bool route_by_headers(void);
