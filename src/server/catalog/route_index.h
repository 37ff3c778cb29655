/* route_index.h: finds the sinks that take an event by a few hash lookups, for any number of sinks with `match` or
 * with names without wildcards. */
#pragma once

#include "server/catalog/route.h"

/* Builds the index in the current memory context. `sinks` must stay valid until the next call. */
void route_index(RouteSink *sinks, int n);

/* Returns the sinks that take the event, ordered by OID; palloc'd. */
RouteSink **route_takers(const RouteEvent *event, int *n);

/* Does this sink take the event? */
bool route_takes(const RouteSink *sink, const RouteEvent *event);

/* The name of an option by which the sink does not take the event: a static string. NULL: it takes it. */
const char *route_refusal(const RouteSink *sink, const RouteEvent *event);

/* Does one of the globs that begin with `prefix` match the text? */
bool route_globs_match(char *const *globs, const char *text, const char *prefix);

/* Does any sink have the option `match`? */
bool route_by_headers(void);
