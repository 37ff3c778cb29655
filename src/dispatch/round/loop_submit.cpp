/*
 * loop_submit.cpp: events are submitted after the claim's commit: an error in the transaction would roll the claim
 * back while the event is being sent. Where a synchronous standby must confirm the events first, the worker holds
 * them and claims no more. If the standby takes longer than 1 s, they are returned to the table, because a user may
 * change or delete them meanwhile, and are claimed again when the standby has confirmed.
 */
#include "dispatch/round/loop.h"

#include <algorithm>

namespace dispatch {

/* Must a held event be returned? Completions that came meanwhile may have returned or blocked earlier events of its
 * sink or key. */
bool Loop::must_return(const InFlightEvent *event) const {
  const RoundSink *sink = round_sink_of(event);

  return sink->cursor->rewound_before(event->position) ||
         (sink->rules.ordered && d_.blocked_keys.find_before(sink->id(), event->key_hash, event->position));
}

bool Loop::is_blocker(const InFlightEvent *event) const {
  const RoundSink *sink = round_sink_of(event);
  const BlockedKey *key =
      event->failed && sink->rules.ordered ? d_.blocked_keys.find(sink->id(), event->key_hash) : nullptr;

  return key && key->blocker == event->position;
}

/* An error (a cancel while the log is written) leaves in the batch the events that were neither submitted nor
 * returned, each once. */
void Loop::hand_over(RoundSink &sink, bool was_held) {
  bool gaps = false;

  for (int i = 0; was_held && i < sink.n_batch; i++)
    if (must_return(sink.batch_events[i])) {
      port_.claim_round().return_event(sink.batch_events[i]);
      sink.batch_events[i] = nullptr;
      gaps = true;
    }
  const int taken = sink.n_batch > 0 ? port_.submit(sink, gaps) : 0;
  OUTBOX_LOOP_SIGNAL(port_, "submit.taken");
  const Moment now = port_.moment();
  for (int i = 0; i < taken; i++) {
    d_.in_flight.submitted(sink.batch_events[i], now);
    sink.batch_events[i] = nullptr;
  }
  for (int i = taken; i < sink.n_batch; i++) {
    port_.claim_round().return_event(sink.batch_events[i]);
    sink.batch_events[i] = nullptr;
  }
  sink.n_batch = 0;
}

/* Hands the events that the round has claimed to their sinks, or holds them. Returns their number. */
int Loop::submit_claimed() {
  int claimed = 0;

  for (const RoundSink *sink : d_.sinks.all())
    claimed += sink->n_batch;
  if (claimed == 0)
    return 0;
  const uint64_t lsn = port_.lsn_to_confirm();
  if (!port_.is_confirmed(lsn)) {
    awaited_ = lsn;
    waits_since_ = port_.moment();
    holds_events_ = true;
    for (RoundSink *sink : d_.sinks.all())
      sink->cursor->hold_batch();
    return claimed;
  }
  for (RoundSink *sink : d_.sinks.all())
    hand_over(*sink, false);
  return claimed;
}

void Loop::return_held() {
  if (holds_events_)
    for (RoundSink *sink : d_.sinks.all()) {
      for (int i = 0; i < sink->n_batch; i++)
        port_.claim_round().return_event(sink->batch_events[i]);
      sink->n_batch = 0;
    }
  holds_events_ = false;
}

/* The standbys have confirmed, or are not waited for anymore. */
void Loop::end_wait() {
  if (holds_events_) {
    for (RoundSink *sink : d_.sinks.all())
      hand_over(*sink, true);
    hold_ms_ = HOLD_MS;
  }
  if (told_)
    port_.standbys_are_back();
  awaited_ = 0;
  holds_events_ = told_ = false;
}

/* True when a wait is over, so that events are claimed again. */
bool Loop::check_standbys(Moment now) {
  if (!waits_for_standbys())
    return false;
  if (port_.is_confirmed(awaited_)) {
    end_wait();
    return true;
  }
  if (holds_events_ && moment_is_past(waits_since_, now, hold_ms_)) {
    return_held();
    hold_ms_ = std::min(hold_ms_ * 2, HOLD_MAX_MS);
  }
  if (!holds_events_ && !told_) {
    told_ = true;
    port_.standbys_missing(awaited_);
  }
  return false;
}

}  // namespace dispatch
