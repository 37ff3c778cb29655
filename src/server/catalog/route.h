/*
 * route.h: which sinks take an event. A per-backend cache of the foreign servers of our wrappers, rebuilt after a
 * catalog invalidation. Read at enqueue time by every backend, and by the worker for rows that wait for a sink.
 *
 * A session that enqueues one event reads all sinks, and there may be thousands: so the cache holds what routing
 * needs, and all else of a sink is read when that one is chosen.
 */
#pragma once

#include "server/base/server.h"

#include "delivery/delivery.h"

typedef struct RouteSink {
  Oid server_oid;
  char name[NAMEDATALEN];
  const char *kind;      /* "kafka", "webhook": the wrapper's name without "outbox_" */
  bool is_manual;        /* no worker delivers its events: outbox.claim() gives them out */
  char **events;         /* glob list, NULL-terminated */
  char **aggregates;     /* glob list, NULL-terminated */
  const char *retention; /* NULL = not set */
  bool by_headers;       /* it has the option "match" */
  int n_headers; /* 0 with `by_headers`: nobody can read them (written by another library), it takes nothing */
  ob_match *headers;
  struct RouteSink *same_header; /* the next one that stands under this one's header */
  bool checker_tried;
  ob_checker *checker;
} RouteSink;

/* What routes look at. Text in the server's encoding, headers in UTF-8. */
typedef struct RouteEvent {
  const char *aggregate_type;
  const char *event_type;
  const ob_header *headers;
  size_t n_headers;
} RouteEvent;

/* The cache. What these functions return is valid until the next call of one of them. Order: by server OID. */
RouteSink *route_sinks(int *n);

/* Changes with whatever decides who takes an event, and with nothing else that the catalog is touched for. */
uint64 route_generation(void);

/* "order.*, customer.*" as a NULL-terminated list, palloc'd. */
char **route_globs(const char *globs);

/* NULL when there is none of that name. */
RouteSink *route_find(const char *name);

/* Raises an error when there is none. */
RouteSink *route_must_find(const char *name);

/* Raises an error when there is none, or when the role has no USAGE on it. */
RouteSink *route_require(const char *name, Oid role);

/* Judges events for the sink; opened when first asked for. NULL when the options do not parse (written by another
 * library). The cache stays as it is. */
const ob_checker *route_checker(RouteSink *sink);
