#include "server/worker/completions.h"

#include "server/claim/claim.h"
#include "server/inflight/blocking.h"
#include "server/inflight/ended.h"
#include "server/inflight/flights.h"
#include "server/inflight/sink_log.h"
#include "server/sinks/worker_sinks.h"

extern "C" {
#include "access/xact.h"
}

/* A failure that may be the sink's own is recorded so much later: when the circuit opens meanwhile, it never was. */
static const int SUSPECT_DELAY_MS = 250;
/* Taken at a time. */
static const int COLLECT_MAX = 4096;

static ob_engine *engine = NULL;

void completions_init(ob_engine *engine_) {
  engine = engine_;
}

/* What waits for its topic behind an earlier event of its key waits for that one: only the first is to have a time of
 * its own, or the key would be through no sooner than the last of them. */
static bool waits_for_its_blocker(const Flight *flight) {
  return flight->sink->common.ordered &&
         blocked_keys().find_before(flight->sink->oid, flight->key_hash, flight->position);
}

static void take_completion(const ob_completion *completion, Now now) {
  Flight *flight = flight_of_ticket(completion->ticket);

  if (flight == NULL)
    return;
  WorkerSink *sink = flight->sink;
  ob_outcome outcome = completion->outcome;
  if (outcome == OB_RELEASED || (outcome == OB_WAIT && waits_for_its_blocker(flight))) {
    claim_return(flight);
    return;
  }
  if (outcome == OB_RETRY) {
    int allowed = completion->max_attempts > 0 ? Min(completion->max_attempts, sink->common.max_attempts)
                                               : sink->common.max_attempts;
    flight->slow_retry = completion->slow_retry;
    if (flight->attempts + 1 >= allowed)
      outcome = OB_REJECTED;
  }
  worker_sink_event_ended(sink, flight->bytes);
  sink->last_failed = outcome == OB_RETRY || outcome == OB_WAIT;
  flight->ended_at = now.wall;
  flight_end(flight, outcome, completion->retry_after_ms, completion->error);
  /* The key is held or goes on from here, before anything more of it is claimed. */
  if (completion->suspect) {
    flight->suspect = true;
    flight->record_after = moment_after(now.moment, SUSPECT_DELAY_MS);
  }
  if (sink->common.ordered &&
      (outcome == OB_RETRY || outcome == OB_WAIT || flight->suspect || (outcome == OB_REJECTED && sink->common.hold)))
    key_block(sink->oid, flight->key_hash, flight->position);
  else
    blocked_keys().release(sink->oid, flight->key_hash, flight->position);
  if (flight->suspect) {
    ended_suspect(flight->record_after);
    return;
  }
  ended_note(now.moment);
}

static void give_back_suspect(Flight *flight) {
  WorkerSink *sink = flight->sink;

  if (flight->attempts == 0) /* else it blocks its key as before */
    blocked_keys().release(sink->oid, flight->key_hash, flight->position);
  worker_sink_event_not_ended(sink, flight->bytes);
  claim_return(flight);
}

void completions_acquit(void) {
  int n;
  WorkerSink **sinks = worker_sinks_all(&n);

  for (int i = 0; i < n && flights_ended() > 0; i++)
    if (sinks[i]->status.state == OB_SINK_CIRCUIT_OPEN)
      flights_acquit(sinks[i], give_back_suspect);
}

void completions_collect(Now now) {
  Assert(!IsTransactionState());
  static ob_completion completions[COLLECT_MAX];
  size_t n;
  ob_log_line line;

  do {
    n = ob_collect(engine, completions, COLLECT_MAX);
    for (size_t i = 0; i < n; i++)
      take_completion(&completions[i], now);
  } while (n == COLLECT_MAX);
  while (ob_next_log(engine, &line))
    sink_log_line(&line, now.moment);
}
