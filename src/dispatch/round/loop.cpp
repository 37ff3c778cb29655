/* loop.cpp: a turn of the loop, and its transactions. */
#include "dispatch/round/loop.h"

namespace dispatch {

/* Did the claim of this round, or of a sink, end because the worker may hold no more events? */
bool Loop::claim_was_full(bool claim) const {
  return d_.places_exhausted || (claim && (d_.round.free_events <= 0 || d_.round.free_bytes <= 0));
}

/* The transaction of a round, and the submit after it. */
void Loop::transact(Now now, bool record, bool claim) {
  task_ = Task::CLAIM;
  port_.begin(record ? Task::RECORD : Task::CLAIM);
  if (record) {
    task_ = Task::RECORD;
    OUTBOX_ROUND_POINT(port_, "record.begin");
    port_.record(now);
    OUTBOX_ROUND_POINT(port_, "record.before_commit");
    task_ = claim ? Task::CLAIM : Task::RECORD;
  }
  if (claim && !(polls_only_ && !port_.has_news())) {
    port_.refresh_sinks(now);
    rescan_wanted_ = rescan_wanted_ || polls_only_;
    more_ = port_.claim(now, &rescan_wanted_);
  }
  OUTBOX_ROUND_POINT(port_, "round.before_commit");
  port_.commit();
  if (record) {
    OUTBOX_LOOP_POINT(port_, "record.committed");
    const int held = d_.in_flight.count();
    const bool room = port_.recorded(now);
    OUTBOX_LOOP_SIGNAL(port_, "record.told");
    more_ = more_ || room || (claim_was_full(claim) && d_.in_flight.count() < held); /* there is room now */
    port_.succeeded(Task::RECORD);
  }
  if (claim) {
    OUTBOX_LOOP_POINT(port_, "claim.before_flush");
    port_.flush();
    OUTBOX_LOOP_POINT(port_, "claim.before_submit");
    const int claimed = submit_claimed();
    OUTBOX_LOOP_SIGNAL(port_, "submit.before_settle");
    d_.commit_round();
    d_.linger.claimed(now.moment, port_.moment(), claimed, d_.in_flight.running(), more_ || d_.sinks.any_starved());
    port_.succeeded(Task::CLAIM);
  }
}

/* A failed transaction loses nothing: the next one records the ended events, and the claimed events are returned. */
bool Loop::round_trip(Now now, bool record_wanted, bool claim) {
  const bool record = record_wanted && d_.in_flight.n_ended() > 0;

  record_others_ = false;
  more_ = false;
  const Fault fault = port_.run(now, claim, task_, [&] { transact(now, record, claim); });
  if (fault == Fault::NONE)
    return more_;
  OUTBOX_LOOP_SIGNAL(port_, "round.failed");
  if (record) {
    record_others_ = port_.recording_rolled_back(now, task_ == Task::RECORD, fault != Fault::OF_SERVER);
    if (record_others_)
      port_.succeeded(Task::RECORD); /* others may succeed, so they are tried without a pause */
  }
  if (claim) {
    OUTBOX_LOOP_SIGNAL(port_, "claim.give_back");
    port_.claim_round().give_back();
    rescan_wanted_ = true;
  }
  if (fault == Fault::OF_ONE_ROW)
    port_.succeeded(Task::CLAIM); /* the other rows are claimed without a pause */
  port_.rolled_back(fault, task_);
  return claim;
}

void Loop::take(uint64_t ticket, const Completion &completion, Now now) {
  InFlightEvent *event = d_.in_flight.find_ticket(ticket);

  if (event == nullptr)
    return;
  OUTBOX_LOOP_SIGNAL(port_, "completion.taken");
  RoundSink *sink = round_sink_of(event);
  if (d_.is_returned(event, completion.outcome, sink->rules.ordered)) {
    port_.claim_round().return_event(event);
    return;
  }
  sink->event_ended(event->bytes);
  d_.event_ended(event, completion, sink->rules, now);
}

/* Discards the failures by which an outage was recognized and returns their events: those failures were the sink's,
 * not the events'. */
void Loop::discard_suspects() {
  for (RoundSink *sink : d_.sinks.all()) {
    if (d_.in_flight.n_ended() == 0 || !port_.is_circuit_open(*sink))
      continue;
    for (InFlightEvent *event = d_.take_suspects(&sink->events), *next = nullptr; event; event = next) {
      next = event->next;
      OUTBOX_LOOP_SIGNAL(port_, "suspect.returned");
      if (!event->failed) /* an event that has failed before still blocks its key */
        d_.blocked_keys.release(sink->id(), event->key_hash, event->position);
      sink->event_not_ended(event->bytes);
      port_.claim_round().return_event(event);
    }
  }
}

void Loop::turn(Now clock) {
  const Moment now = clock.moment;

  OUTBOX_LOOP_POINT(port_, "loop.begin");
  port_.collect(clock);
  OUTBOX_LOOP_POINT(port_, "loop.collected");
  const bool lingers = now < d_.lingers_until();
  /* Asked before the snapshot is taken: each later commit wakes the worker. */
  if (!lingers && port_.ask_to_be_woken())
    claims_wanted_ = true;
  if (port_.rescan_requested())
    rescan_wanted_ = claims_wanted_ = true;
  if (check_standbys(now))
    claims_wanted_ = true;
  if (lingers && !d_.recording.is_due(now)) {
    port_.wakes_by_itself();
    return;
  }
  port_.refresh_sinks(clock);
  discard_suspects();
  const bool poll = !lingers && moment_is_past(polled_at_, now, port_.poll_ms());
  if (poll) /* finds events whose commits woke no worker: a crash in between, sessions without this library */
    polled_at_ = now;
  const bool wanted =
      claims_wanted_ || port_.claim_round().can_go_on(clock.wall) || d_.locked_rows.next_moment() <= now;
  polls_only_ = poll && !wanted && !rescan_wanted_;
  rescan_wanted_ = rescan_wanted_ || (poll && !polls_only_);
  const bool may_claim = !lingers && !waits_for_standbys() && now >= port_.pause_end(Task::CLAIM);
  const bool claim = may_claim && (wanted || poll);
  bool record = (claim || d_.recording.is_due(now)) && now >= port_.pause_end(Task::RECORD);
  bool room = false;
  if (record && (!claim || port_.has_errors() || d_.recording.in_trouble())) {
    room = round_trip(clock, true, false);
    record = false;
  }
  if (claim)
    claims_wanted_ = round_trip(clock, record, true);
  claims_wanted_ = claims_wanted_ || room;
  if (now < d_.lingers_until())
    port_.wakes_by_itself();
}

}  // namespace dispatch
