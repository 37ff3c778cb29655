/* dispatch.cpp: creates the object that owns all parts, and passes the begin and end of a round to the parts that
 * need them. */
#include "dispatch/dispatch.h"

#include <algorithm>

#include "dispatch/sink_share.h"

namespace dispatch {

Dispatch *create() noexcept {
  return checked(new (std::nothrow) Dispatch());
}

/* Sinks with a backlog come first. One event always fits in a sink's part of the bytes. */
void Dispatch::give_places(int max_events, int64_t max_bytes) noexcept {
  const int n = static_cast<int>(sinks.all().size());
  const int64_t bytes = std::max<int64_t>(1, max_bytes / std::max(1, n));
  SinkShares shares(max_events, n);

  for (const RoundSink *sink : sinks.all())
    shares.add(*sink);
  for (const bool with_backlog : {true, false})
    for (const RoundSink *sink : sinks.all())
      if (sink->cursor->has_backlog() == with_backlog)
        sink->cursor->set_free_places(shares.may_claim(*sink),
                                      sink->in_flight == 0 ? bytes : bytes - sink->bytes_in_flight);
  places_exhausted = shares.exhausted();
}

void Dispatch::raise_watermarks() noexcept {
  const int64_t lowest = sinks.any_fresh_shard() || !sinks.troubled_known() ? 0 : locked_rows.first();
  const auto lower = [this](SinkId id, int64_t position) {
    if (const RoundSink *sink = sinks.find(id))
      sink->cursor->lower_watermark(position);
  };

  for (const RoundSink *sink : sinks.all()) {
    sink->cursor->raise_watermark(blocked_keys.lowest(sink->id()));
    sink->cursor->lower_watermark(lowest);
  }
  for (const InFlightEvent *event = in_flight.next(nullptr); event; event = in_flight.next(event)) {
    round_sink_of(event)->cursor->lower_watermark(event->position);
    lower(event->given_to, event->position);
  }
  for (const Mark &mark : marks.returned())
    lower(mark.sink, mark.position);
}

void Dispatch::begin_round(Now now, int free_events, int64_t free_bytes) noexcept {
  round = {};
  round.open = true;
  round.now = now;
  round.free_events = free_events;
  round.free_bytes = free_bytes;
  late_commits.begin_round();
  main_scan.begin_round();
  redrive_order.begin_round();
  rescan_cursor.begin_round();
  sinks.begin_round();
  locked_rows.begin_round(now.moment);
}

void Dispatch::commit_round() noexcept {
  round.open = false;
  late_commits.commit_round();
  locked_rows.commit_round();
  marks.commit_round();
}

void Dispatch::roll_back_round() noexcept {
  round.open = false;
  /* A row that keeps its mark is found by its key when that drains, and by nothing else. */
  for (const Mark &mark : marks.all())
    if (mark.removes)
      blocked_keys.release(mark.sink, mark.key_hash, mark.position);
  blocked_keys.drain_all_again();
  late_commits.roll_back_round();
  locked_rows.roll_back_round();
  marks.roll_back_round();
  rescan_cursor.roll_back_round();
  sinks.roll_back_round();
}

void Dispatch::block_key(SinkId sink, uint64_t key_hash, int64_t position) noexcept {
  const int64_t replaced = blocked_keys.block(sink, key_hash, position);

  if (replaced != 0)
    locked_rows.add(replaced, sink, key_hash);
}

void Dispatch::mark_returned() noexcept {
  for (Mark &mark : marks.take_up_returned()) {
    const BlockedKey *key = blocked_keys.find_before(mark.sink, mark.key_hash, mark.position);
    mark.group = key ? key->group : 0;
    if (key)
      marks.add(mark);
  }
}

void Dispatch::event_claimed(const InFlightEvent *event) noexcept {
  round.free_events--;
  round.free_bytes -= event->bytes;
  round.n_claimed++;
  redrive_order.claimed({event->sink->id, event->key_hash}, event->position);
}

bool Dispatch::is_returned(const InFlightEvent *event, Outcome outcome, bool ordered) const noexcept {
  return outcome == Outcome::RETURNED ||
         (outcome == Outcome::DEFERRED && ordered &&
          blocked_keys.find_before(event->sink->id, event->key_hash, event->position) != nullptr);
}

/* A failed attempt is the last one when no more are allowed. */
Outcome Dispatch::outcome_of(const InFlightEvent *event, const Completion &completion,
                             const SinkRules &rules) noexcept {
  Outcome outcome = completion.outcome;

  if (outcome == Outcome::RETRY) {
    const bool refused_for_good =
        completion.max_refusals > 0 && refusals.add(event->position, event->attempts) >= completion.max_refusals;
    if (refused_for_good || event->attempts + 1 >= rules.max_attempts)
      outcome = Outcome::REJECTED;
  }
  if (outcome == Outcome::SENT || outcome == Outcome::REJECTED)
    refusals.forget(event->position);
  return outcome;
}

static bool blocks_its_key(Outcome outcome, bool suspect, const SinkRules &rules) {
  return rules.ordered && (outcome == Outcome::RETRY || outcome == Outcome::DEFERRED ||
                           (outcome == Outcome::REJECTED && (suspect || rules.dead_letters_block)));
}

void Dispatch::event_ended(InFlightEvent *event, const Completion &completion, const SinkRules &rules,
                           Now now) noexcept {
  const Outcome outcome = outcome_of(event, completion, rules);

  event->slow_retry = completion.outcome == Outcome::RETRY && completion.slow_retry;
  in_flight.end(event, outcome, completion.retry_after_ms, completion.error, now);
  if (completion.suspect)
    recording.suspect_ended(event, now.moment);
  else
    recording.ended(event, now.moment);
  /* Not only when it is recorded, which its locked row may delay: later events of its key ask for it before. */
  if (outcome == Outcome::REJECTED)
    dead_letter_keys.note(event->key_hash);
  if (blocks_its_key(outcome, completion.suspect, rules))
    block_key(event->sink->id, event->key_hash, event->position);
  else
    blocked_keys.release(event->sink->id, event->key_hash, event->position);
}

InFlightEvent *Dispatch::take_suspects(const SinkInFlight *sink) noexcept {
  InFlightEvent *first = in_flight.take_suspects(sink);

  if (first)
    recording.suspects_taken(in_flight);
  return first;
}

Disposition Dispatch::settle(InFlightEvent *event, FoundRow found, Retention retention) noexcept {
  if (!recording.is_ready(event, found, retention))
    return Disposition::LATER;
  const Disposition disposition = disposition_of(event, found, retention);
  /* An earlier event may have taken the failed one's place as the blocker, and have been sent, while a lock delayed
   * this record. From now on only the row tells that the event failed, and a draining key would pass it. */
  if (disposition == Disposition::RETRY)
    block_key(event->sink->id, event->key_hash, event->position);
  if (disposition == Disposition::FORGET) {
    in_flight.gone(event);
    blocked_keys.release(event->sink->id, event->key_hash, event->position);
  } else {
    in_flight.recorded(event);
    if (disposition == Disposition::RETRY)
      recording.failure_recorded(event);
  }
  return disposition;
}

void Dispatch::dead_letter(SinkId sink, uint64_t key_hash, int64_t position, bool blocks) noexcept {
  dead_letter_keys.note(key_hash);
  if (blocks)
    block_key(sink, key_hash, position);
  else
    blocked_keys.release(sink, key_hash, position);
}

/* Other keys may drain meanwhile. There the row waits like a locked one, as it is the blocker of no marked row before
 * it: the key drains up to it. */
void Dispatch::redriven_row(SinkId sink, uint64_t key_hash, int64_t position) noexcept {
  if (in_flight.find(position) != nullptr)
    return;
  const BlockedKey *key = blocked_keys.find(sink, key_hash);
  if (key == nullptr || key->state != KeyState::DRAINING)
    block_key(sink, key_hash, position);
  else if (!locked_rows.has(position))
    locked_rows.add(position, sink, key_hash);
}

int64_t Dispatch::group_behind_blocker(const InFlightEvent *event) const noexcept {
  const BlockedKey *key = blocked_keys.find_before(event->sink->id, event->key_hash, event->position);
  return key ? key->group : 0;
}

void Dispatch::commit_recording(uint64_t lsn) noexcept {
  in_flight.committed(lsn);
  recording.committed(in_flight);
  out_of_order.end();
}

void Dispatch::roll_back_recording() noexcept {
  in_flight.aborted();
  recording.rolled_back(in_flight);
  out_of_order.end();
}

}  // namespace dispatch
