#include "server/worker/maintenance.h"

#include "server/base/settings.h"
#include "server/catalog/route.h"
#include "server/enqueue/waiting.h"
#include "server/event/event_row.h"
#include "server/event/unreadable.h"
#include "server/process/worker_slot.h"
#include "server/process/worker_transaction.h"
#include "server/sinks/worker_sinks.h"
#include "server/storage/row_lock.h"

extern "C" {
#include "access/xact.h"
#include "executor/spi.h"
#include "utils/memutils.h"
}

static const int MAINTAIN_EVERY_MS = 10 * 60 * 1000;
static const int RETRY_MS = 5000;

static bool routing_wanted = false;
static bool routing_failed = false;
static uint64 routed_generation = 0; /* of the routes: it is known that they changed up to here */
static Moment route_at = MOMENT_NONE;
static Moment maintain_at = MOMENT_NONE;
static bool am_first = true;

/* Tables whose rows expire one by one: a worker goes through them again and again, a little at a time. */
typedef struct Expiry {
  const char *call;
  const int *window; /* s: how long a row lives */
  int64 block;       /* the next one */
  Moment at;
} Expiry;

enum { EXPIRY_BLOCKS = 256 }; /* of 8 kB: some 20,000 dedup keys, 20 ms when all of them go */
static Expiry expiries[] = {
    {"SELECT outbox.expire_dedup(%lld, %d)", &setting_dedup_window, 0, MOMENT_NONE},
    {"SELECT outbox.expire_processed(%lld, %d)", &setting_processed_retention, 0, MOMENT_NONE}};
static const int EXPIRY_PAUSE_MIN_MS = 200;
static const int EXPIRY_ROUND_MIN_MS = 2 * 1000;

void maintenance_look_at_routes(void) {
  uint64 generation = route_generation();

  routing_wanted |= generation != routed_generation;
  routed_generation = generation;
}

bool maintenance_routing(void) {
  return routing_wanted && !routing_failed;
}

/* Routes may have changed since it was seen before. */
static void forget_unrouted(int64 position) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  for (int i = 0; i < n; i++)
    if (sinks[i]->unrouted_at == position)
      sinks[i]->unrouted_at = 0;
}

bool maintenance_saw_unrouted(const EventRow *row) {
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
      sink->unrouted_at = row->position;
  }
  MemoryContextSwitchTo(caller);
  MemoryContextReset(context);
  routing_wanted |= n > 0 && !waiting_is_locked(row->position);
  return n > 0 && !routing_failed; /* else nothing would go on */
}

bool maintenance_waits_for_locks(void) {
  return waiting_locked() > 0;
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

static void run_route_locked(void *more) {
  *(bool *)more = waiting_route_locked();
}

/* All that wait, or only those that somebody had locked. */
static void route(Moment now) {
  worker_slot_work("routing events that waited for a sink");
  bool more = false;

  if (routing_wanted) {
    int64 routed = call(TAKE_TURNS, "SELECT outbox.route_waiting()");
    routing_failed = routed < 0;
    routing_wanted = routed != 0;
  } else {
    routing_failed = !worker_transaction(TAKE_TURNS, run_route_locked, &more);
    routing_wanted = more || routing_failed; /* its list is gone then */
  }
  bool locked_alone = !routing_failed && !routing_wanted && waiting_locked() > 0;
  route_at = routing_failed ? moment_after(now, RETRY_MS) : locked_alone ? moment_after(now, ROW_BUSY_PAUSE_MS) : now;
}

/* So that a row stays an eighth longer than it must, at most; a small table is looked at as often as the days are. */
static void expire(Expiry *expiry, Moment now) {
  char statement[100];

  snprintf(statement, sizeof statement, expiry->call, (long long)expiry->block, (int)EXPIRY_BLOCKS);
  int64 size = call(NULL, statement);
  int64 pieces = size / EXPIRY_BLOCKS + 1;
  int64 round_ms = Max((int64)*expiry->window * 1000 / 8, EXPIRY_ROUND_MIN_MS);
  int64 pause_ms =
      size <= 0 ? MAINTAIN_EVERY_MS : Min(Max(round_ms / pieces, EXPIRY_PAUSE_MIN_MS), MAINTAIN_EVERY_MS);
  expiry->block = expiry->block + EXPIRY_BLOCKS < size ? expiry->block + EXPIRY_BLOCKS : 0;
  expiry->at = moment_after(now, pause_ms);
}

void maintenance_run(Moment now, bool first_worker) {
  Assert(!IsTransactionState());
  am_first = first_worker;
  if ((routing_wanted || waiting_locked() > 0) && now >= route_at)
    route(now);
  if (first_worker && now >= maintain_at) {
    worker_slot_work("making days of delivered events, and dropping those that are over");
    int64 done = call(NULL, "SELECT outbox.maintain_days(true)");
    maintain_at = moment_after(now, done < 0 ? RETRY_MS : MAINTAIN_EVERY_MS);
  }
  for (Expiry &expiry : expiries)
    if (first_worker && now >= expiry.at)
      expire(&expiry, now);
}

void maintenance_day_missing(void) {
  maintain_at = MOMENT_NONE;
}

Moment maintenance_next_moment(void) {
  Moment moment = MOMENT_NEVER;

  if (am_first) {
    moment = maintain_at;
    for (const Expiry &expiry : expiries)
      moment = Min(moment, expiry.at);
  }
  return routing_wanted || waiting_locked() > 0 ? Min(route_at, moment) : moment;
}
