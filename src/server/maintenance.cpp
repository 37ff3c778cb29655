#include "maintenance.h"

#include "event_row.h"
#include "route.h"
#include "worker_transaction.h"

extern "C" {
#include "executor/spi.h"
#include "utils/memutils.h"
}

static const int MAINTAIN_EVERY_MS = 10 * 60 * 1000;
static const int RETRY_MS = 5000;

static bool routing_wanted = false;
static bool routing_failed = false;
static TimestampTz route_at = 0;
static TimestampTz maintain_at = 0;
static bool am_first = true;

void maintenance_routes_changed(void) {
  routing_wanted = true;
}

bool maintenance_routing(void) {
  return routing_wanted && !routing_failed;
}

bool maintenance_saw_unrouted(const EventRow *row) {
  static MemoryContext context = NULL; /* thousands may wait, and a round sees them all */
  int n;

  if (context == NULL)
    context = AllocSetContextCreate(TopMemoryContext, "outbox unrouted event", ALLOCSET_SMALL_SIZES);
  MemoryContext caller = MemoryContextSwitchTo(context);
  RouteEvent event = {event_row_aggregate_type(row), event_row_event_type(row), NULL, 0};
  if (route_by_headers())
    event.headers = event_row_headers(row, &event.n_headers);
  (void)route_takers(&event, &n);
  MemoryContextSwitchTo(caller);
  MemoryContextReset(context);
  routing_wanted = routing_wanted || n > 0;
  return n > 0 && !routing_failed; /* else nothing would go on */
}

typedef struct Call {
  const char *statement;
  int64 result;
} Call;

static void run_call(void *argument) {
  Call *call = (Call *)argument;
  bool is_null;

  if (SPI_execute(call->statement, false, 1) != SPI_OK_SELECT || SPI_processed != 1)
    elog(ERROR, "\"%s\" returned nothing", call->statement);
  call->result = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &is_null));
}

/* Runs one function of ours that returns bigint; -1 when it failed. */
static int64 call(const char *before, const char *statement) {
  Call call = {statement, -1};

  return worker_transaction(before, run_call, &call) ? call.result : -1;
}

/* Workers take turns: when one finds nothing left to route, nothing is under way elsewhere either. */
static const char *const TAKE_TURNS = "LOCK TABLE outbox.recalled IN SHARE UPDATE EXCLUSIVE MODE";

void maintenance_run(TimestampTz now, bool first_worker) {
  am_first = first_worker;
  if (routing_wanted && now >= route_at) {
    int64 routed = call(TAKE_TURNS, "SELECT outbox.route_waiting()");
    routing_failed = routed < 0;
    if (routed == 0)
      routing_wanted = false;
    route_at = routing_failed ? TimestampTzPlusMilliseconds(now, RETRY_MS) : now;
  }
  if (first_worker && now >= maintain_at) {
    int64 done = call(NULL, "SELECT outbox.maintain()");
    maintain_at = TimestampTzPlusMilliseconds(now, done < 0 ? RETRY_MS : MAINTAIN_EVERY_MS);
  }
}

TimestampTz maintenance_next_moment(void) {
  TimestampTz moment = am_first ? maintain_at : DT_NOEND;

  return routing_wanted ? Min(route_at, moment) : moment;
}
