/*
 * unrouted.cpp: events that wait for a sink, as the claims see them. Whether one takes them now is found out when a
 * claim comes across them; to route them is a job (worker/maintenance.cpp), and the sinks that take them claim
 * nothing later before it is done.
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
static bool failed = false;
static uint64 routed_generation = 0; /* of the routes: it is known that they changed up to here */

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

/* Routes may have changed since it was seen before. */
static void forget_unrouted(int64 position) {
  for (WorkerSink *sink : worker_sinks_all())
    sink->cursor->routing_over(position);
}

bool unrouted_saw(const EventRow *row) {
  static MemoryContext context = NULL; /* thousands may wait, and a round sees them all */
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
    forget_unrouted(row->position);
  for (int i = 0; i < n; i++) {
    WorkerSink *sink = worker_sink_find(takers[i]->name, (int)strlen(takers[i]->name));
    if (sink)
      sink->cursor->wait_for_routing(row->position);
  }
  MemoryContextSwitchTo(caller);
  MemoryContextReset(context);
  wanted |= n > 0 && !unrouted_is_locked(row->position);
  return n > 0 && !failed; /* else nothing would go on */
}
