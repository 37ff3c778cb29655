/*
 * route.h: which sinks take an event. A per-backend cache of the foreign servers of our wrappers, rebuilt after a
 * catalog invalidation. Read at enqueue time by every backend, and by the worker for rows that wait for a sink.
 */
#pragma once

#include "server.h"

typedef struct RouteSink {
  Oid server_oid;
  char name[NAMEDATALEN];
  char kind[32];       /* "kafka", "webhook": the wrapper's name without "outbox_" */
  bool usable;         /* false when the options do not parse (written by an older library) */
  char **events;       /* glob list, NULL-terminated */
  char **aggregates;   /* glob list, NULL-terminated */
  ob_checker *checker; /* NULL when not usable */
} RouteSink;

/* The cache, valid until the next catalog access. Order: by server OID. */
RouteSink *route_sinks(int *n);

/* Does this sink take such an event? fnmatch(3) globs. */
bool route_matches(const RouteSink *sink, const char *aggregate_type, const char *event_type);

/* NULL when there is none of that name. */
RouteSink *route_find(const char *name);

/* Raises an error when there is none. */
RouteSink *route_must_find(const char *name);

/* Raises an error when there is none, or when the role has no USAGE on it. */
RouteSink *route_require(const char *name, Oid role);
