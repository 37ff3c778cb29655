/*
 * exit_when_idle.cpp: collects from the sinks whether this worker is idle. A sink that is not open and healthy keeps
 * its worker, because the next worker would not know the sink's failures.
 */
#include "server/worker/exit_when_idle.h"

#include "server/base/settings.h"
#include "server/claim/unrouted.h"
#include "server/enqueue/unrouted_events.h"
#include "server/process/worker_slot.h"
#include "server/sinks/dispatcher.h"
#include "server/sinks/shard_handoff.h"
#include "server/sinks/worker_sinks.h"

static bool sinks_are_quiet(void) {
  for (const WorkerSink *sink : worker_sinks_all()) {
    if (sink->state == SINK_STOPPED)
      continue; /* it delivers nothing until a user resumes it */
    if (sink->state != SINK_OPEN || sink->status.state != OB_SINK_OK || sink->status.paused_ms > 0 ||
        sink->cursor->has_backlog() || !sink->cursor->late.empty() || sink->cursor->early_retry.going() ||
        dispatcher().blocked_keys.any_draining(sink->id()))
      return false;
  }
  return true;
}

static dispatch::Idleness idleness(bool quiet) {
  return {quiet, setting_worker_idle_timeout, worker_slots_are_scarce()};
}

bool should_exit_idle(Now now, bool quiet) {
  dispatch::IdleExit &idle_exit = dispatcher().idle_exit;
  const dispatch::Idleness idle =
      idleness(quiet && sinks_are_quiet() && !unrouted_wanted() && unrouted_locked() == 0);
  const bool is_long_enough = idle_exit.idle_for_long(now.moment, idle);
  Moment until;

  if (idle_exit.busy())
    worker_slot_run();
  if (!is_long_enough)
    return false;
  const Moment next =
      Min(Min(worker_sinks_next_moment(now.moment), dispatcher().locked_rows.next_moment()), shards_next_moment());
  const TimestampTz due = worker_sinks_next_due();
  return idle_exit.worth_it(now, idle, next, due, &until) && worker_slot_exit_idle(until, due);
}

Moment idle_exit_next_moment(Moment now) {
  return dispatcher().idle_exit.next_moment(now, idleness(true));
}
