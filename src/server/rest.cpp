#include "rest.h"

#include "claim.h"
#include "held_keys.h"
#include "lanes.h"
#include "maintenance.h"
#include "settings.h"
#include "worker_sinks.h"
#include "worker_slot.h"

static const int LONGEST_MS = 60 * 60 * 1000;
/* To leave costs a start later: not for less than this. */
static const int SHORTEST_MS = 1000;

static TimestampTz idle_since = 0; /* 0 = it is busy */

/* What is wrong with a sink would have to be found out anew. */
static bool sinks_are_quiet(void) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  for (int i = 0; i < n; i++) {
    if (sinks[i]->stopped && sinks[i]->handle == NULL)
      continue; /* for as long as a person likes */
    if (sinks[i]->handle == NULL || sinks[i]->closing || sinks[i]->status.state != OB_SINK_OK || sinks[i]->starved ||
        sinks[i]->n_late > 0 || sinks[i]->resumed.going || held_keys_any_draining(sinks[i]->oid))
      return false;
  }
  return true;
}

static int patience_ms(void) {
  return worker_slot_scarce() ? 0 : setting_worker_idle_timeout;
}

bool rest_taken(TimestampTz now, bool quiet) {
  if (!quiet || setting_worker_idle_timeout == 0 || !sinks_are_quiet() || maintenance_routing()) {
    idle_since = worker_slot()->idle_until = 0;
    return false;
  }
  if (idle_since == 0)
    idle_since = now;
  if (now < TimestampTzPlusMilliseconds(idle_since, patience_ms()))
    return false;
  TimestampTz due = Min(Min(worker_sinks_next_moment(), claim_next_moment()), lanes_next_moment());
  due = Min(due, TimestampTzPlusMilliseconds(now, LONGEST_MS));
  if (due < TimestampTzPlusMilliseconds(now, Max(SHORTEST_MS, patience_ms())))
    return false;
  return worker_slot_rest(due);
}

TimestampTz rest_next_moment(void) {
  TimestampTz moment = TimestampTzPlusMilliseconds(idle_since, patience_ms());

  /* Once that has come, whatever else wakes the worker will do. */
  return idle_since == 0 || moment <= GetCurrentTimestamp() ? DT_NOEND : moment;
}
