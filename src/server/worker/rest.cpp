#include "server/worker/rest.h"

#include "server/base/settings.h"
#include "server/claim/unrouted.h"
#include "server/enqueue/waiting.h"
#include "server/inflight/blocking.h"
#include "server/process/worker_slot.h"
#include "server/sinks/dispatcher.h"
#include "server/sinks/shard_handoff.h"
#include "server/sinks/worker_sinks.h"

static const int LONGEST_MS = 60 * 60 * 1000;
/* To leave costs a start later: not for less than this. */
static const int SHORTEST_MS = 1000;

static Moment idle_since = MOMENT_NONE; /* MOMENT_NONE = it is busy */

/* What is wrong with a sink would have to be found out anew. */
static bool sinks_are_quiet(void) {
  for (WorkerSink *sink : worker_sinks_all()) {
    if (sink->state == SINK_STOPPED)
      continue; /* for as long as a person likes */
    if (sink->state != SINK_OPEN || sink->status.state != OB_SINK_OK || sink->starved || sink->n_late > 0 ||
        sink->resumed.going || blocked_keys().any_draining(sink->oid))
      return false;
  }
  return true;
}

static int patience_ms(void) {
  return worker_slot_scarce() ? 0 : setting_worker_idle_timeout;
}

bool rest_taken(Now now, bool quiet) {
  if (!quiet || setting_worker_idle_timeout == 0 || !sinks_are_quiet() || unrouted_routing() ||
      waiting_locked() > 0) {
    idle_since = MOMENT_NONE;
    worker_slot_run();
    return false;
  }
  if (idle_since == MOMENT_NONE)
    idle_since = now.moment;
  if (!moment_is_past(idle_since, now.moment, patience_ms()))
    return false;
  Moment until =
      Min(Min(worker_sinks_next_moment(now.moment), dispatcher().locked_rows.next_moment()), shards_next_moment());
  until = Min(until, moment_after(now.moment, LONGEST_MS));
  TimestampTz due = worker_sinks_next_due();
  if (Min(until, moment_of_wall(now, due)) < moment_after(now.moment, Max(SHORTEST_MS, patience_ms())))
    return false;
  return worker_slot_rest(until, due);
}

Moment rest_next_moment(Moment now) {
  Moment moment = moment_after(idle_since, patience_ms());

  /* Once that has come, whatever else wakes the worker will do. */
  return idle_since == MOMENT_NONE || moment <= now ? MOMENT_NEVER : moment;
}
