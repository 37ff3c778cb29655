/*
 * submit.cpp: events are submitted after the claim's commit: an error in the transaction would roll the claim back
 * while the event is being sent. Events that have waited for a standby for more than 1 s are returned, so that a user
 * can still delete them while a standby is away for hours.
 */
#include "server/worker/submit.h"

#include "server/base/fault_point.h"
#include "server/claim/claim.h"
#include "server/inflight/events_in_flight.h"
#include "server/sinks/worker_sinks.h"
#include "server/storage/standby.h"

extern "C" {
#include "access/xact.h"
#include "replication/syncrep.h"
}

/* How long events are held. The time doubles when it was too short, so that a slow standby cannot stop delivery for
 * good. */
static const int HOLD_MS = 1000;
static const int HOLD_MAX_MS = 60000;
/* The pause between checks grows with the wait, up to this time: a running standby confirms within 1 or 2 ms, and a
 * stopped one may stay away for hours. */
static const int64 LONGEST_PAUSE_MS = 50;

static XLogRecPtr awaited = InvalidXLogRecPtr;
static Moment since = MOMENT_NONE;
static bool holds_events = false;
static bool reported = false;
static int hold_ms = HOLD_MS;

/* Must a held event be returned? Completions that came meanwhile may have returned or blocked earlier events of its
 * sink or key. */
static bool must_return(const InFlightEvent *event) {
  const WorkerSink *sink = sink_of(event);

  return sink->cursor->rewound_before(event->position) ||
         (sink->rules.ordered && dispatcher().blocked_keys.find_before(sink->id(), event->key_hash, event->position));
}

/* Is the event the blocker of its key, for which the others wait in the table? That it has failed does not prove it:
 * the event may have failed while its sink was unordered, or may drain with others after its former blocker has
 * ended. */
static bool is_blocker(const InFlightEvent *event) {
  const WorkerSink *sink = sink_of(event);
  const dispatch::BlockedKey *key =
      event->failed && sink->rules.ordered ? dispatcher().blocked_keys.find(sink->id(), event->key_hash) : NULL;

  return key && key->blocker == event->position;
}

/* An error (a cancel while the log is written) leaves in the batch the events that were neither submitted nor
 * returned, each once. */
static void hand_over(WorkerSink *sink, bool was_held) {
  int n = 0;

  for (int i = 0; i < sink->n_batch; i++) {
    InFlightEvent *event = sink->batch_events[i];
    if (was_held && must_return(event)) {
      claim_return(event);
      sink->batch_events[i] = NULL;
      continue;
    }
    sink->batch[n] = sink->batch[i];
    sink->batch[n].alone = is_blocker(event);
    sink->batch_events[i] = NULL;
    sink->batch_events[n++] = event;
  }
  int taken = n > 0 && sink->state == SINK_OPEN ? (int)ob_submit(sink->handle, sink->batch, n) : 0;
  OUTBOX_SIGNAL_POINT("submit.taken");
  const Moment now = moment_now();
  for (int i = 0; i < taken; i++) {
    in_flight().submitted(sink->batch_events[i], now);
    sink->batch_events[i] = NULL;
  }
  for (int i = taken; i < n; i++) {
    claim_return(sink->batch_events[i]);
    sink->batch_events[i] = NULL;
  }
  sink->n_batch = 0;
}

int submit_claimed(void) {
  Assert(!IsTransactionState());
  int claimed = 0;

  for (WorkerSink *sink : worker_sinks_all())
    claimed += sink->n_batch;
  if (claimed == 0)
    return 0;
  XLogRecPtr target = standby_target();
  if (standby_required() && !standby_has(target)) {
    awaited = target;
    since = moment_now();
    holds_events = true;
    for (WorkerSink *sink : worker_sinks_all())
      sink->cursor->hold_batch();
    return claimed;
  }
  for (WorkerSink *sink : worker_sinks_all())
    hand_over(sink, false);
  return claimed;
}

void submit_return_held(void) {
  Assert(!IsTransactionState());
  if (holds_events)
    for (WorkerSink *sink : worker_sinks_all()) {
      for (int i = 0; i < sink->n_batch; i++)
        claim_return(sink->batch_events[i]);
      sink->n_batch = 0;
    }
  holds_events = false;
}

/* The standbys have confirmed, or are not waited for anymore. */
static void end_wait(void) {
  if (holds_events) {
    for (WorkerSink *sink : worker_sinks_all())
      hand_over(sink, true);
    hold_ms = HOLD_MS;
  }
  if (reported)
    ereport(LOG, (errmsg("outbox no longer waits for a synchronous standby")));
  awaited = InvalidXLogRecPtr;
  holds_events = reported = false;
}

bool submit_check_standbys(Moment now) {
  Assert(!IsTransactionState());
  if (!submit_waits())
    return false;
  if (!standby_required() || standby_has(awaited)) {
    end_wait();
    return true;
  }
  if (holds_events && moment_is_past(since, now, hold_ms)) {
    submit_return_held();
    hold_ms = Min(hold_ms * 2, HOLD_MAX_MS);
  }
  if (!holds_events && !reported) {
    reported = true;
    ereport(
        WARNING,
        (errmsg("outbox waits for a synchronous standby"),
         errdetail("Events wait until the standbys of synchronous_standby_names (%s) have confirmed WAL up to %X/%X.",
                   SyncRepStandbyNames, (uint32)(awaited >> 32), (uint32)awaited),
         errhint("Start a standby, change synchronous_standby_names, or turn outbox.wait_for_standbys off.")));
  }
  return false;
}

bool submit_waits(void) {
  return awaited != InvalidXLogRecPtr;
}

bool submit_is_stalled(void) {
  return submit_waits() && !holds_events;
}

long submit_pause_ms(Moment now) {
  return (long)Min(Max((now.us - since.us) / 1000 / 10, 1), LONGEST_PAUSE_MS);
}
