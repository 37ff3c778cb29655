/*
 * unrouted.cpp: a claim that finds an unrouted event checks whether a sink takes it by now. worker/maintenance.cpp
 * routes it; until then the sinks that take the event claim no later one. An error of the routing changes nothing in
 * that, only an error of the event itself does (event/unreadable.h): then no sink waits for it.
 */
#include "server/claim/unrouted.h"

#include "server/catalog/route.h"
#include "server/catalog/route_index.h"
#include "server/enqueue/unrouted_events.h"
#include "server/event/unreadable.h"
#include "server/sinks/worker_sinks.h"

extern "C" {
#include "utils/memutils.h"
}

static bool wanted = false;
static bool failed = false;          /* routing is tried again after a pause */
static uint64 routed_generation = 0; /* the last change of the routes that was seen */

void unrouted_look_at_routes(void) {
  uint64 generation = route_generation();

  wanted |= generation != routed_generation;
  routed_generation = generation;
}

bool unrouted_wanted(void) {
  return wanted;
}

void unrouted_routed(bool done, bool more) {
  failed = !done;
  wanted = more || failed;
}

bool unrouted_routing(void) {
  return wanted && !failed;
}

bool unrouted_is_stuck(int64 position) {
  return position != 0 && (failed || unrouted_is_locked(position));
}

/* Routes may have changed since the event was last seen. */
static void forget_takers(int64 position) {
  for (WorkerSink *sink : worker_sinks_all())
    sink->cursor->routing_over(position);
}

bool unrouted_saw(const EventRow *row) {
  static MemoryContext context = NULL; /* a round may see thousands of unrouted events */
  int n;

  if (context == NULL)
    context = AllocSetContextCreate(TopMemoryContext, "outbox unrouted event", ALLOCSET_SMALL_SIZES);
  MemoryContext caller = MemoryContextSwitchTo(context);
  unreadable_begin(row->position, row->xmin, PART_ROUTING);
  RouteEvent event = {event_row_aggregate_type(row), event_row_event_type(row), NULL, 0};
  if (route_by_headers())
    event.headers = event_row_headers(row, &event.n_headers);
  unreadable_done();
  RouteSink **takers = route_takers(&event, &n);
  if (n > 0)
    forget_takers(row->position);
  for (int i = 0; i < n; i++) {
    WorkerSink *sink = worker_sink_find(takers[i]->name, (int)strlen(takers[i]->name));
    if (sink)
      sink->cursor->wait_for_routing(row->position);
  }
  MemoryContextSwitchTo(caller);
  MemoryContextReset(context);
  wanted |= n > 0 && !unrouted_is_locked(row->position);
  return n > 0;
}
