/*
 * submit.cpp: nothing is submitted in a transaction: an error after it would roll the claim back while the event is
 * on its way. What waits for a standby longer than a second is given back, so that a user's DELETE keeps its
 * meaning while a standby is away for hours.
 */
#include "server/worker/submit.h"

#include "server/claim/claim.h"
#include "server/inflight/blocking.h"
#include "server/inflight/in_flight.h"
#include "server/sinks/worker_sinks.h"
#include "server/storage/standby.h"

extern "C" {
#include "access/xact.h"
#include "replication/syncrep.h"
}

/* How long events are held in hand; doubled when it was too short, so that a slow standby stops nothing for ever. */
static const int PATIENCE_MS = 1000;
static const int PATIENCE_MAX_MS = 60000;
/* The longer it takes, the rarer the looks: a standby nearby answers within a millisecond or two, one that is away
 * may be so for hours. */
static const int64 LONGEST_PAUSE_MS = 50;

static XLogRecPtr awaited = InvalidXLogRecPtr;
static Moment since = MOMENT_NONE;
static bool in_hand = false;
static bool said = false;
static int patience_ms = PATIENCE_MS;

/* Completions that came while it was held may have put earlier events back, or have closed its sink. */
static bool must_go_back(const InFlightEvent *event) {
  const WorkerSink *sink = sink_of(event);

  return event->position > sink->rewound_to ||
         (sink->common.ordered && blocked_keys().find_before(sink->oid, event->key_hash, event->position));
}

/* The failing event of its key, behind which the others wait in the table. That it has failed before does not say so:
 * it may have done so while its sink was not ordered, or drain with others behind a head that is through. */
static bool goes_alone(const InFlightEvent *event) {
  const WorkerSink *sink = sink_of(event);
  const BlockedKey *key =
      event->attempts > 0 && sink->common.ordered ? blocked_keys().find(sink->oid, event->key_hash) : NULL;

  return key && key->blocker == event->position;
}

static void hand_over(WorkerSink *sink, bool was_held) {
  int n = 0;

  for (int i = 0; i < sink->n_batch; i++) {
    if (was_held && must_go_back(sink->batch_events[i])) {
      claim_return(sink->batch_events[i]);
      continue;
    }
    sink->batch[n] = sink->batch[i];
    sink->batch[n].alone = goes_alone(sink->batch_events[i]);
    sink->batch_events[n++] = sink->batch_events[i];
  }
  int taken = n > 0 && sink->state == SINK_OPEN ? (int)ob_submit(sink->handle, sink->batch, n) : 0;
  for (int i = 0; i < n; i++) {
    if (i < taken)
      in_flight().submitted(sink->batch_events[i]);
    else
      claim_return(sink->batch_events[i]);
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
    in_hand = true;
    for (WorkerSink *sink : worker_sinks_all())
      sink->rewound_to = PG_INT64_MAX;
    return claimed;
  }
  for (WorkerSink *sink : worker_sinks_all())
    hand_over(sink, false);
  return claimed;
}

void submit_return_held(void) {
  if (in_hand)
    for (WorkerSink *sink : worker_sinks_all()) {
      for (int i = 0; i < sink->n_batch; i++)
        claim_return(sink->batch_events[i]);
      sink->n_batch = 0;
    }
  in_hand = false;
}

/* The wait is over. */
static void go_on(void) {
  if (in_hand) {
    for (WorkerSink *sink : worker_sinks_all())
      hand_over(sink, true);
    patience_ms = PATIENCE_MS;
  }
  if (said)
    ereport(LOG, (errmsg("outbox goes on: no synchronous standby is waited for any more")));
  awaited = InvalidXLogRecPtr;
  in_hand = said = false;
}

bool submit_check_standbys(Moment now) {
  Assert(!IsTransactionState());
  if (!submit_waits())
    return false;
  if (!standby_required() || standby_has(awaited)) {
    go_on();
    return true;
  }
  if (in_hand && moment_is_past(since, now, patience_ms)) {
    submit_return_held();
    patience_ms = Min(patience_ms * 2, PATIENCE_MAX_MS);
  }
  if (!in_hand && !said) {
    said = true;
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
  return submit_waits() && !in_hand;
}

long submit_pause_ms(Moment now) {
  return (long)Min(Max((now.us - since.us) / 1000 / 10, 1), LONGEST_PAUSE_MS);
}
