/*
 * completions.cpp: collects until the delivery library has nothing left, at most 4,096 at a time, and counts
 * outcomes and latencies. A completion has 16 bytes and does not contain the message.
 */
#include "server/worker/completions.h"

#include "server/base/error_text.h"
#include "server/base/fault_point.h"
#include "server/base/is_worker.h"
#include "server/claim/claim.h"
#include "server/inflight/events_in_flight.h"
#include "server/inflight/sink_log.h"
#include "server/sinks/worker_sinks.h"

extern "C" {
#include "access/xact.h"
#include "mb/pg_wchar.h"
}

/* Completions per call of ob_collect(). */
static const int COLLECT_MAX = 4096;

static_assert((int)Outcome::SENT == OB_SENT && (int)Outcome::RETRY == OB_RETRY &&
              (int)Outcome::DEFERRED == OB_DEFERRED && (int)Outcome::REJECTED == OB_REJECTED &&
              (int)Outcome::RETURNED == OB_RETURNED);

static ob_engine *engine = NULL;

void completions_init(ob_engine *engine_) {
  engine = engine_;
}

static void take_completion(const ob_completion *completion, Now now) {
  InFlightEvent *event = in_flight().find_ticket(completion->ticket);

  if (event == NULL)
    return;
  OUTBOX_SIGNAL_POINT("completion.taken");
  WorkerSink *sink = sink_of(event);
  const Outcome outcome = (Outcome)completion->outcome;
  if (dispatcher().is_returned(event, outcome, sink->rules.ordered)) {
    claim_return(event);
    return;
  }
  const char *text = outcome == Outcome::SENT ? completion->acknowledgement : completion->error;
  char other_encoding[OB_ERROR_MAX + 1];
  if (text && GetDatabaseEncoding() != PG_UTF8) {
    strlcpy(other_encoding, text, sizeof(other_encoding));
    library_text(other_encoding);
    text = other_encoding;
  }
  require_memory(outcome == Outcome::SENT || dispatcher().make_room_to_block());
  sink->event_ended(event->bytes);
  dispatcher().event_ended(event,
                           {outcome, completion->retry_after_ms, text, completion->max_attempts, completion->suspect,
                            completion->slow_retry},
                           sink->rules, now);
}

static void return_suspect(InFlightEvent *event) {
  WorkerSink *sink = sink_of(event);

  OUTBOX_SIGNAL_POINT("suspect.returned");
  if (!event->failed) /* an event that has failed before still blocks its key */
    dispatcher().blocked_keys.release(sink->id(), event->key_hash, event->position);
  sink->event_not_ended(event->bytes);
  claim_return(event);
}

void discard_suspected_failures(void) {
  Assert(!IsTransactionState());
  for (WorkerSink *sink : worker_sinks_all())
    if (sink->status.state == OB_SINK_CIRCUIT_OPEN && in_flight().ended() > 0)
      for (InFlightEvent *event = dispatcher().take_suspects(&sink->events), *next = NULL; event; event = next) {
        next = event->next;
        return_suspect(event);
      }
}

void completions_collect(Now now) {
  Assert(server_is_worker && !IsTransactionState() && engine != NULL);
  static ob_completion completions[COLLECT_MAX];
  size_t n;
  ob_log_line line;

  do {
    n = ob_collect(engine, completions, COLLECT_MAX);
    for (size_t i = 0; i < n; i++)
      take_completion(&completions[i], now);
  } while (n == COLLECT_MAX);
  while (ob_next_log(engine, &line)) {
    library_text(line.text);
    sink_log_line(&line, now);
  }
}
