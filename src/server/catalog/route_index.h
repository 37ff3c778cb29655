/* route_index.h: finds the sinks that want an event's headers by one look-up for each header, however many sinks
 * there are. */
#pragma once

#include "server/catalog/route.h"

/* Indexes the cache, in the current memory context; `sinks` stays where it is until the next call. */
void route_index(RouteSink *sinks, int n);
