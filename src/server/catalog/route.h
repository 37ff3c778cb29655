/*
 * route.h: the sinks as routing needs them: a cache of the foreign servers of outbox's wrappers, which each backend
 * rebuilds after a catalog invalidation. Sessions route the events that they enqueue, and the worker routes unrouted
 * events.
 *
 * A session that enqueues one event reads all sinks, possibly thousands. So the cache holds only the options for
 * routing; the other options of a sink are read when it is chosen.
 */
#pragma once

#include "server/base/server.h"

#include "server/catalog/kind_library.h"

#include "delivery/delivery.h"

typedef struct RouteSink {
  Oid server_oid;
  char name[NAMEDATALEN];
  const char *kind;      /* "kafka", "webhook": the wrapper's name without "outbox_" */
  bool is_manual;        /* no worker delivers its events: consumers call outbox.claim() */
  char **events;         /* glob list, NULL-terminated */
  char **aggregates;     /* glob list, NULL-terminated */
  const char *retention; /* NULL = not set */
  bool by_headers;       /* it has the option "match" */
  /* 0 with `by_headers`: a "match" of another version of the library, which this one cannot parse: no event fits. */
  int n_headers;
  ob_match *headers;
  bool checker_tried;
  ob_checker *checker;
  size_t max_payload; /* known with the checker */
} RouteSink;

/* The part of an event that routes match. Names are in the server's encoding, headers in UTF-8. */
typedef struct RouteEvent {
  const char *aggregate_type;
  const char *event_type;
  const ob_header *headers;
  size_t n_headers;
} RouteEvent;

/* Returns all sinks, ordered by OID. The results of the functions below are valid until the next call of one of them
 * or the next statement. In a transaction, as the functions below. */
RouteSink *route_sinks(int *n);

/* A number that changes when the routing of events changes, and at no other change of the catalog. */
uint64 route_generation(void);

/* Splits "order.*, customer.*" into a NULL-terminated list, palloc'd. */
char **route_globs(const char *globs);

/* Sets the routing options of a sink that is not in the cache: those of a dropped one. */
void route_read_options(Datum options, bool isnull, RouteSink *sink);

/* Returns NULL when no sink has this name. */
RouteSink *route_find(const char *name);

/* Raises an error when no sink has this name. */
RouteSink *route_must_find(const char *name);

/* Raises an error when no sink has this name, or when the role has no USAGE on the server. */
RouteSink *route_require(const char *name, Oid role);

/* Returns the sink's checker of events, opened at the first call. NULL when the options do not parse, because another
 * version of the library wrote them. Does not rebuild the cache. KIND_WHOLE: a checker of the kind's whole library,
 * whose previews are byte for byte what the worker sends; it takes the place of the former one. */
const ob_checker *route_checker(RouteSink *sink, KindPart part);
/* The largest payload that the sink takes, in bytes. The largest that any sink can take when the options do not
 * parse. Does not rebuild the cache. */
size_t route_max_payload(RouteSink *sink);
