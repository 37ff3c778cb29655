/*
 * maintenance.cpp: daily partitions are also created while rows of another origin exist. A pause in that case
 * protected no restore, and without partitions a subscriber that was not adopted deleted after four days events that
 * it should have kept.
 */
#include "server/worker/maintenance.h"

#include "server/base/fault_point.h"
#include "server/base/settings.h"
#include "server/catalog/kind_library.h"
#include "server/claim/unrouted.h"
#include "server/enqueue/unrouted_events.h"
#include "server/process/worker_error.h"
#include "server/process/worker_slot.h"
#include "server/process/worker_transaction.h"
#include "server/record/day_partition.h"
#include "server/storage/row_lock.h"

extern "C" {
#include "access/xact.h"
#include "executor/spi.h"
#include "utils/timestamp.h"
}

static const int MAINTAIN_EVERY_MS = 10 * 60 * 1000;
static const int RETRY_MS = 5000;
static const int LOOK_EVERY_MS = 10 * 1000;
static const int LIBRARIES_MS = 10 * 1000;

static const int ROUTE_RETRY_MS = 500;     /* at least */
static const int ROUTE_TURN_PAUSE_MS = 50; /* another worker routes 1,000 events */

static Moment route_at = MOMENT_NONE;
static Moment maintain_at = MOMENT_NONE;
static Moment look_at = MOMENT_NONE; /* at the sinks, for operator events */
static bool is_first_worker = true;
static bool is_first_loop = true;

/* A table whose rows expire one by one. The worker scans it again and again, EXPIRY_BLOCKS pages at a time. */
typedef struct Expiry {
  const char *call;
  const int *window; /* how long a row is kept, in seconds */
  int64 block;       /* the next page to scan */
  Moment at;
} Expiry;

static const int INBOX_WINDOW_S = 60 * 60; /* the shortest retention of outbox_inbox */

enum { EXPIRY_BLOCKS = 256 }; /* of 8 kB: about 20,000 dedup keys; deleting all of them takes 20 ms */
static Expiry expiries[] = {{"SELECT outbox_internal.expire_dedup(%lld, %d)", &setting_dedup_window, 0, MOMENT_NONE},
                            {"SELECT outbox_internal.maintain_inbox(%lld, %d)", &INBOX_WINDOW_S, 0, MOMENT_NONE}};
static const int EXPIRY_PAUSE_MIN_MS = 200;
static const int EXPIRY_ROUND_MIN_MS = 2 * 1000;

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

/* Runs one function of the extension that returns bigint. Returns -1 after an error. */
static int64 call(const char *statement) {
  Call call = {statement, -1};

  return worker_transaction(NULL, run_call, &call) ? call.result : -1;
}

static void look_for_day(void *exists) {
  *(bool *)exists = sent_day_exists(GetCurrentTimestamp());
}

/* Without it, an UPDATE by which a user marks an event as sent would fail. */
static bool has_day(void) {
  bool exists = false;

  return worker_transaction(NULL, look_for_day, &exists) && exists;
}

typedef struct Routing {
  bool is_my_turn;
  bool more; /* other events may still be unrouted */
} Routing;

/* Routes all unrouted events, or only the noted ones that were locked. */
static void run_routing(void *argument) {
  Routing *routing = (Routing *)argument;

  routing->is_my_turn = unrouted_lock_routing();
  if (!routing->is_my_turn)
    return;
  if (unrouted_wanted()) {
    Call call = {"SELECT outbox_internal.route_waiting()", 0};
    run_call(&call);
    routing->more = call.result > 0;
  } else {
    routing->more = unrouted_route_locked();
  }
}

/* For the doctor: since when events wait to be routed, and why. */
static void report_routing(bool done) {
  static TimestampTz since = 0;
  const bool waits = unrouted_wanted() || unrouted_locked() > 0;

  since = !waits ? 0 : since != 0 ? since : GetCurrentTimestamp();
  worker_slot_report_routing(since, waits && !done ? worker_last_error() : "");
}

/* The short timeout: a lock that stops the routing need not stop the deliveries. */
static void route(Moment now) {
  Routing routing = {false, false};

  OUTBOX_FAULT_POINT("route.begin");
  worker_slot_report_work("routing events without a sink");
  const bool done = worker_transaction("SET LOCAL lock_timeout = '100ms'", run_routing, &routing);
  if (done && !routing.is_my_turn) {
    route_at = moment_after(now, ROUTE_TURN_PAUSE_MS);
    return;
  }
  unrouted_routed(done, routing.more);
  report_routing(done);
  route_at = !done ? Max(moment_after(now, ROUTE_RETRY_MS), worker_pause_end(TASK_MAINTAIN))
             : !routing.more && unrouted_locked() > 0 ? moment_after(now, ROW_BUSY_PAUSE_MS)
                                                      : now;
}

/* Deletes expired rows of the next pages. One scan of the table takes at most an eighth of the window, so rows are
 * kept at most an eighth too long. A table of one piece is scanned every 10 min. */
static void expire(Expiry *expiry, Moment now) {
  char statement[100];

  snprintf(statement, sizeof statement, expiry->call, (long long)expiry->block, (int)EXPIRY_BLOCKS);
  int64 size = call(statement);
  int64 steps = size / EXPIRY_BLOCKS + 1;
  int64 round_ms = Max((int64)*expiry->window * 1000 / 8, EXPIRY_ROUND_MIN_MS);
  int64 pause_ms = size <= 0 ? MAINTAIN_EVERY_MS : Min(Max(round_ms / steps, EXPIRY_PAUSE_MIN_MS), MAINTAIN_EVERY_MS);
  expiry->block = expiry->block + EXPIRY_BLOCKS < size ? expiry->block + EXPIRY_BLOCKS : 0;
  expiry->at = moment_after(now, pause_ms);
}

/* Often enough for outbox.notice_after. A look takes little more than a SELECT from outbox.sinks: some milliseconds,
 * 0.4 s with 1,000 sinks and a million events. It takes nothing if no sink asks for such events. */
static void look(Moment now) {
  const int64 pause_ms = Min((int64)setting_notice_after * 1000 / 2, LOOK_EVERY_MS);
  const int64 result = call("SELECT outbox_internal.look_at_sinks()");

  look_at = result == 0 ? MOMENT_NEVER : moment_after(now, result < 0 ? Max(pause_ms, RETRY_MS) : pause_ms);
}

void maintenance_run(Moment now, bool first_worker) {
  Assert(!IsTransactionState());
  is_first_worker = first_worker;
  if ((unrouted_wanted() || unrouted_locked() > 0) && now >= route_at)
    route(now);
  if (is_first_loop) { /* the events for which the worker was started are sent before it does anything else */
    is_first_loop = false;
    if (has_day())
      return;
  }
  if (first_worker && now >= maintain_at) {
    worker_slot_report_work("creating and dropping daily partitions");
    int64 done = call("SELECT outbox_internal.maintain_days(true)");
    maintain_at = moment_after(now, done < 0 ? RETRY_MS : MAINTAIN_EVERY_MS);
  }
  if (first_worker && now >= look_at)
    look(now);
  for (Expiry &expiry : expiries)
    if (first_worker && now >= expiry.at)
      expire(&expiry, now);
}

void maintenance_sinks_changed(void) {
  look_at = MOMENT_NONE;
}

void maintenance_day_missing(void) {
  maintain_at = MOMENT_NONE;
}

bool maintenance_library_replaced(Moment now) {
  static Moment looked_at = MOMENT_NONE;

  if (!moment_is_past(looked_at, now, LIBRARIES_MS))
    return false;
  looked_at = now;
  return kind_library_replaced();
}

Moment maintenance_next_moment(void) {
  Moment moment = MOMENT_NEVER;

  if (is_first_worker) {
    moment = Min(maintain_at, look_at);
    for (const Expiry &expiry : expiries)
      moment = Min(moment, expiry.at);
  }
  return unrouted_wanted() || unrouted_locked() > 0 ? Min(route_at, moment) : moment;
}
